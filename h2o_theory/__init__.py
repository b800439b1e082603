"""The reference toolkit for the theory of KV-cache eviction in large language models.

Record the attention of a model, replay eviction policies on it, and compare each with the exact
offline optimum::

    import h2o_theory as ht

    with ht.record(model, "run.trace"):
        model(**batch)
    trace = ht.open_trace("run.trace")
    table = ht.replay(trace, "h2o,recent,sink,optimum", "5%,10%,20%")

Each name below loads on first use, so that the import is quick and needs neither torch nor
transformers. ``help(h2o_theory.replay)`` says more of a function, ``help(h2o_theory.engine)`` of
a room.

Traces
    load_model          a model by its name or folder, ready to record
    record              record what a model attends to inside a with-block
    record_text         record a model on one text
    record_texts        record a model on several texts
    import_attention    attention matrices from a file, as a trace
    open_trace          read a trace
    validate            check a whole trace
    Trace, TraceSpec, LayerSpec

Policies
    replay              policies on a trace, each against the optimum
    run_sweep           a grid of replays, resumable
    schedules           when each policy evicts each token
    resolved_parts      what budgets come to: sinks, heavy hitters, recent tokens
    replay_masks        sparse attention patterns, whose keys may return
    replay_transforms   keys and values in fewer bits
    read_budget_matrix  one budget for each layer and kv_head, from a file
    BudgetMatrix, PlainPolicy

Theory
    certified_optimum   the exact optimum, with certificates
    certified_interval  bounds of the optimum, for long traces
    ratio_intervals     a policy's ratio to the optimum, bounded from both sides
    measure_guarantee   the paper's guarantee, step by step
    analyze             heavy hitters of a trace

Results
    summary_table       means over heads
    save_results        a table with its provenance, as .parquet or .csv
    load_results        read it again
    write_report        figures, tables and one HTML page
    write_analysis      the same for an analysis

Rooms
    annotations, errors, store, attention, optimum, statistics, instances, submodular, policies,
    budgets, costs, engine, testing, masks, trace, recorder, guarantee, transforms, analysis,
    live, sweep, experiments, figures, report

H2OTheoryError is the base class of all errors.
"""

import lazy_loader

__version__ = "0.1.0"

# No __all__: with one, help() would print every function in full in place of the list above.
__getattr__, __dir__ = lazy_loader.attach_stub(__name__, __file__)[:2]
