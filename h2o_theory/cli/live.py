"""``h2o-theory live``: policies evict inside the running model; what that does to its loss."""

import argparse
import sys
from pathlib import Path
from typing import Any

from h2o_theory.budgets import read_budget_matrix
from h2o_theory.cli.common import print_json, print_table, say, shown_progress
from h2o_theory.errors import BadArgument
from h2o_theory.recorder import LoadedModel
from h2o_theory.recorder.reading import read_text
from h2o_theory.report import save_figure, save_results
from h2o_theory.store import provenance

__all__ = ["add_options", "live_provenance", "require_tokenizer"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Run a model over a text while each policy evicts keys and values in every "
        "layer, and compare its loss with that of the full cache, token by token. Exact: an "
        "evicted key is never attended again. Finished cells under --out are not computed again. "
        "MODEL is a hub id, a local folder, a .gguf file or the short name smollm2-135m."
    )
    parser.epilog = (
        "example: h2o-theory live smollm2-135m --text notes.txt --tokens 512 --windows 3 "
        "--policy h2o,recent,sink --budget 10%,20% --out notes.live"
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--text", required=True, metavar="FILE", help="a UTF-8 text file")
    parser.add_argument(
        "--policy",
        metavar="P,P,...",
        default="h2o,recent,sink,random",
        help="online policies, with parameters as in h2o:recent=0.25 (default: %(default)s)",
    )
    parser.add_argument(
        "--budget",
        metavar="K,K,...",
        default="10%,20%",
        help="tokens a query sees, its own included, shares of the window, or pyramid:20%% for "
        "budgets that fall from layer to layer (default: %(default)s)",
    )
    parser.add_argument(
        "--budget-matrix",
        action="append",
        default=[],
        metavar="FILE",
        help="one budget for each layer and kv_head, .json or .csv, in place of --budget; may be "
        "repeated",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of cells and tables")
    parser.add_argument(
        "--tokens", type=int, metavar="T", help="tokens per window (default: the whole text)"
    )
    parser.add_argument(
        "--windows",
        type=int,
        default=1,
        metavar="N",
        help="number of consecutive windows (default: 1)",
    )
    parser.add_argument(
        "--prefill",
        type=int,
        default=0,
        metavar="P",
        help="number of prompt rows, which are not scored (default: 0)",
    )
    parser.add_argument(
        "--positions",
        choices=("original", "slot"),
        default="original",
        help="whether a key keeps its position in the text or gets its place within the cache "
        "(default: original)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of random policies and samples (default: 0)"
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=0,
        metavar="N",
        help="continuations of the first --prompt tokens to draw per policy and budget",
    )
    parser.add_argument(
        "--prompt",
        type=int,
        default=64,
        metavar="P",
        help="tokens of the prompt of samples (default: 64)",
    )
    parser.add_argument(
        "--new-tokens",
        type=int,
        default=64,
        metavar="M",
        help="tokens to draw per sample (default: 64)",
    )
    parser.add_argument(
        "--temperature", type=float, default=0.8, help="temperature of samples (default: 0.8)"
    )
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ... (default: cpu)")
    parser.add_argument("--dtype", default="float32", help="model dtype (default: float32)")
    parser.add_argument("--json", action="store_true", help="every cell as JSON on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate, save, draw, print; exit code 1 if a cell failed."""
    from h2o_theory.engine.columns import POLICY_COLUMNS
    from h2o_theory.figures.series import label_series
    from h2o_theory.live.campaign import run_live, windows_of
    from h2o_theory.live.samples import admit_samples, sample_table
    from h2o_theory.live.summary import summarise
    from h2o_theory.recorder import load_model
    from h2o_theory.recorder.reading import encode

    text, name = read_text(arguments.text), Path(arguments.text).name
    budgets = [read_budget_matrix(path) for path in arguments.budget_matrix] or arguments.budget
    if arguments.samples and arguments.prompt < 1:
        raise BadArgument("no prompt", where="--prompt", got=arguments.prompt, expected="1 or more")
    with shown_progress() as progress:
        model = load_model(arguments.model, device=arguments.device, dtype=arguments.dtype)
        ids = encode(require_tokenizer(model), text, None, name)
        if arguments.samples:
            admit_samples(model, **_sampled(ids, budgets, arguments))
        campaign = run_live(
            model,
            windows_of(ids, arguments.tokens, arguments.windows),
            arguments.policy,
            budgets,
            out=arguments.out,
            text=name,
            prefill=arguments.prefill,
            positions=arguments.positions,
            seed=arguments.seed,
            progress=progress,
        )
        samples = None
        if arguments.samples:
            samples = sample_table(
                model,
                **_sampled(ids, budgets, arguments),
                seed=arguments.seed,
                out=arguments.out,
                progress=progress,
            )
    origin = live_provenance(model, name, arguments.device)
    summary = summarise(campaign)
    out = Path(arguments.out)
    for kind, table in (("cells", campaign.table), ("summary", summary), ("samples", samples)):
        if table is not None:
            table.attrs["provenance"] = origin
            save_results(table, out / f"{kind}.parquet", overwrite=True)
            save_results(table, out / f"{kind}.csv", overwrite=True)
    _draw(summary, campaign, out)
    say(f"{campaign.skipped} of {len(campaign.table)} cells were finished before; results: {out}")
    if arguments.json:
        table = campaign.table
        print_json(table)
    else:
        title = f"{model.name}, {name}: {arguments.windows} window(s), closed loop"
        shown = label_series(summary).assign(policy=lambda table: table["series"])
        print_table(shown[summary.columns.drop([*POLICY_COLUMNS[1:], "budget_tokens"])], title)
        if samples is not None:
            print_table(samples.drop(columns=[*POLICY_COLUMNS[1:], "text"]), "samples")
    for row in campaign.table[campaign.table["status"] == "failed"].itertuples():
        say(f"failed: {row.policy} at {row.budget}, window {row.window}: {row.reason}")
    broken = campaign.failed or (samples is not None and samples["status"].eq("failed").any())
    return int(bool(broken))


def require_tokenizer(model: LoadedModel) -> Any:
    """The tokenizer of a loaded model; raises BadArgument if it came without one."""
    if model.tokenizer is None:
        raise BadArgument("the model's folder holds no tokenizer", where=model.name)
    return model.tokenizer


def live_provenance(model: LoadedModel, text: str, device: str) -> dict[str, object]:
    """A flat dictionary: model, text, command, versions, date."""
    import torch
    import transformers

    return provenance(
        sys.argv[1:],
        **model.provenance(),
        text=text,
        device=device,
        dtype=str(model.model.dtype).removeprefix("torch."),
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
    )


def _draw(summary, campaign, out):
    from h2o_theory.figures.live import LiveSetting, loss_figure

    done = campaign.table[campaign.table["status"] == "done"]
    if summary["policy_name"].eq("full").all():
        return
    first = done.iloc[0]
    setting = LiveSetting(
        model=first["model"],
        text=first["text"],
        tokens=int(first["tokens"]),
        windows=int(summary["windows"].max()),
        scored=int(summary["n"].max()),
        prefill=int(first["prefill"]),
        positions=first["positions"],
    )
    save_figure(loss_figure(summary, setting), out / "loss.png")


def _sampled(ids, budgets, arguments):
    """What samples are to be drawn of."""
    return {
        "prompt": ids[: arguments.prompt],
        "policies": arguments.policy,
        "budgets": budgets,
        "samples": arguments.samples,
        "new_tokens": arguments.new_tokens,
        "temperature": arguments.temperature,
        "positions": arguments.positions,
    }
