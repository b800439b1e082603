"""``h2o-theory costs``: from a budget to tokens per second, memory and, if measured, loss."""

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from h2o_theory.budgets import KvHeads, resolve_budgets
from h2o_theory.cli.common import print_json, print_table, say
from h2o_theory.costs.case import Case
from h2o_theory.costs.choose import Option, cheapest, frontier
from h2o_theory.costs.constants import Constants
from h2o_theory.costs.contract import policy_cost
from h2o_theory.costs.estimate import estimate
from h2o_theory.costs.fit import constants_for
from h2o_theory.costs.hardware import HARDWARE, find_hardware
from h2o_theory.costs.memory import largest_batch, require_fit
from h2o_theory.costs.shapes import SHAPES, ModelShape, find_shape
from h2o_theory.costs.systems import SYSTEMS, find_system
from h2o_theory.costs.units import GIB, seconds_in_words
from h2o_theory.costs.workload import Workload, parse_placement
from h2o_theory.errors import BadArgument
from h2o_theory.policies import Policy, parse_policies
from h2o_theory.report import load_results, refuse_existing, save_figure, save_results
from h2o_theory.store.atomic import write_bytes

__all__ = ["add_options"]

_NEEDED = ("model", "hardware", "prompt", "generate")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Describe the verb and add its options."""
    parser.description = (
        "Time, memory and largest batch of one generation for every policy and budget, by a cost "
        "model whose constants were fitted on released logs of H2O on an A100 (and, for what its "
        "host does, on a T4) and tested on the others. --published shows that test, and what the "
        "paper's 29x is made of."
    )
    parser.epilog = (
        "example: h2o-theory costs --model opt-6.7b --hardware a100 --prompt 2048 "
        "--generate 2048 --policy full,h2o --budget 10%,20%,50%"
    )
    parser.add_argument(
        "--model", metavar="M", help=f"{', '.join(SHAPES)}, a .toml, or a config.json"
    )
    parser.add_argument(
        "--hardware", metavar="H", help=f"{', '.join(HARDWARE)}, cpu (measured), or a .toml"
    )
    parser.add_argument("--prompt", type=int, metavar="P", help="tokens of the prompt")
    parser.add_argument("--generate", type=int, metavar="N", help="tokens generated")
    parser.add_argument(
        "--policy", metavar="P,P,...", default="full,h2o", help="default: %(default)s"
    )
    parser.add_argument(
        "--budget",
        metavar="K,K,...",
        default="20%",
        help="entries, shares of prompt and generated tokens, or pyramid:20%% for budgets that "
        "fall from layer to layer (default: 20%%)",
    )
    parser.add_argument("--batch", type=int, metavar="B", help="default: the largest that fits")
    parser.add_argument(
        "--batches", type=int, default=1, metavar="N", help="in flight at once (default: 1)"
    )
    parser.add_argument(
        "--system", default="flexgen", help=f"{', '.join(SYSTEMS)} (default: %(default)s)"
    )
    parser.add_argument(
        "--placement",
        metavar="P",
        help="six percentages: weights, cache and activations, each on device and host; the rest "
        "lies on disk (default: as the system has it)",
    )
    parser.add_argument(
        "--bits", type=float, default=0, metavar="B", help="of a number of keys and values"
    )
    parser.add_argument(
        "--quality",
        metavar="FILE",
        help="results with losses: summary of live (loss_increase) or of replay (retained_mass)",
    )
    parser.add_argument(
        "--target-loss", type=float, metavar="X", help="the cheapest budget within this loss"
    )
    parser.add_argument(
        "--published", action="store_true", help="the published logs and tables in place of a run"
    )
    parser.add_argument("--out", metavar="DIR", help="folder for table and figure")
    parser.add_argument("--overwrite", action="store_true", help="replace files in the folder")
    parser.add_argument("--json", action="store_true", help="every number as JSON on stdout")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """CostEstimate, join, save, print."""
    if arguments.published:
        return _published(arguments)
    missing = [f"--{name}" for name in _NEEDED if getattr(arguments, name) is None]
    if missing:
        raise BadArgument("a run needs " + ", ".join(missing), hint="Or ask for --published")
    if arguments.target_loss is not None and not arguments.quality:
        raise BadArgument("--target-loss needs measured losses", hint="Give them with --quality")
    out = Path(arguments.out) if arguments.out else None
    if out:
        refuse_existing(out / "costs.csv", arguments.overwrite)
    options, constants = _options(arguments)
    table = pd.DataFrame(map(_line, options))
    if not arguments.quality:
        table = table.drop(columns="loss")
    if out:
        save_results(table, out / "costs.csv", overwrite=arguments.overwrite)
        say(f"results: {out}")
    if arguments.quality:
        best = frontier(options)
        table["best"] = ["yes" if option in best else "" for option in options]
        if out:
            _draw(table, arguments, out)
    if arguments.json:
        print_json(table)
    else:
        first = options[0].estimate.case
        print_table(table, f"{first.model.name} on {first.hardware.name}, {arguments.prompt} + "
                    f"{arguments.generate} tokens, system {first.system.name}")  # fmt: skip
        print(f"constants: {constants.source}")
    if arguments.target_loss is not None:
        _say_cheapest(options, arguments)
    return 0


def _options(arguments: argparse.Namespace) -> tuple[list[Option], Constants]:
    """Every policy at every budget as an :class:`Option`; the full cache once."""
    model, hardware = find_shape(arguments.model), find_hardware(arguments.hardware)
    system = find_system(arguments.system)
    placement = parse_placement(arguments.placement) if arguments.placement else None
    load = Workload(arguments.prompt, arguments.generate, arguments.batch or 1, arguments.batches)
    budgets = _budgets(model, load, arguments.budget)
    losses = _losses(arguments.quality) if arguments.quality else {}
    constants, options = constants_for(hardware.name), []
    for chosen in parse_policies(arguments.policy):
        everything = not chosen.follows_budget
        for text, held in [("100%", (load.tokens,))] if everything else budgets:
            policy = policy_cost(chosen, held, bits=arguments.bits)
            case = Case(model, hardware, load, policy, system, placement)
            if arguments.batch is None:
                case = case.with_batch(max(1, largest_batch(case)))
            require_fit(case)
            loss = _loss(losses, chosen, text)
            mean = sum(held) / len(held)
            options.append(Option(chosen.asked, text, mean, estimate(case, constants), loss))
    return options, constants


def _budgets(model: ModelShape, load: Workload, asked: str) -> list[tuple[str, tuple[float, ...]]]:
    """Every budget as asked for, and the mean entries of a kv_head, layer by layer."""
    place = KvHeads(load.tokens, tuple(range(model.layers)), model.kv_heads)
    heads = [(layer, head) for layer in place.layers for head in place.kv_heads(layer)]
    return [
        (
            text,
            tuple(
                sum(found[layer, head] for head in place.kv_heads(layer)) / model.kv_heads
                for layer in place.layers
            ),
        )
        for text, found in resolve_budgets(place, asked, heads, load.prompt)
    ]


def _loss(losses: dict[tuple[str, str], float], policy: Policy, budget: str) -> float:
    if not policy.follows_budget:
        return 0.0 if losses else math.nan
    return losses.get((policy.asked, budget), math.nan)


def _losses(path: str) -> dict[tuple[str, str], float]:
    """Measured losses by policy and budget.

    Raises
    ------
    BadArgument
        If the file holds neither an increase of the loss nor the mass retained.
    """
    table = load_results(path)
    if {"policy", "budget", "loss_increase"} <= set(table.columns):
        column = table["loss_increase"]
    elif {"policy", "budget", "retained_mass"} <= set(table.columns):
        column = 1 - table["retained_mass"]
    else:
        raise BadArgument(
            "the results must hold policy, budget, and loss_increase or retained_mass",
            where=path,
            got=", ".join(table.columns),
            hint="Take summary.parquet of h2o-theory live, or what h2o-theory replay wrote",
        )
    means = column.groupby([table["policy"], table["budget"].astype(str)]).mean()
    return {key: float(value) for key, value in means.items()}


def _line(option: Option) -> dict[str, Any]:
    got = option.estimate
    return {
        "policy": option.policy,
        "budget": option.budget,
        "entries": round(option.entries),
        "batch": got.case.workload.sequences,
        "prefill_s": got.prefill.seconds,
        "decode_s": got.decode.seconds,
        "tokens_per_second": got.tokens_per_second,
        "step_ms": 1e3 * got.decode.seconds / max(1, got.case.workload.steps),
        "device_gib": got.peaks.device / GIB,
        "host_gib": got.peaks.host / GIB,
        "prefill_bound": got.prefill.bound,
        "decode_bound": got.decode.bound,
        "loss": option.loss,
    }


def _say_cheapest(options: list[Option], arguments: argparse.Namespace) -> None:
    found = cheapest(options, arguments.target_loss)
    got = found.estimate
    full = next((one for one in options if one.budget == "100%"), None)
    text = (
        f"cheapest within {arguments.target_loss:g}: {found.policy} at {found.budget} "
        f"({found.entries:.0f} entries), loss {found.loss:.3g}, "
        f"{got.tokens_per_second:.4g} tokens/s, {seconds_in_words(got.latency)}"
    )
    if full and full is not found:
        gain = got.tokens_per_second / full.estimate.tokens_per_second
        text += f", {gain:.2f} times the full cache's throughput"
    print(text)
    print(f"the loss is that of {arguments.quality}, taken to hold at the same policy and budget")


def _draw(table: pd.DataFrame, arguments: argparse.Namespace, out: Path) -> None:
    from h2o_theory.figures.costs import CostSetting, frontier_figure

    setting = CostSetting(
        f"{arguments.model} on {arguments.hardware}, {arguments.prompt} + {arguments.generate} "
        f"tokens; loss measured, {Path(arguments.quality).name}; time by the model"
    )
    figure = frontier_figure(table, "measured loss", setting)
    save_figure(figure, out / "frontier.png")


def _published(arguments: argparse.Namespace) -> int:
    from h2o_theory.costs.claims import decompositions
    from h2o_theory.costs.document import published_document

    document = published_document()
    if arguments.out:
        out = Path(arguments.out)
        refuse_existing(out / "costs.json", arguments.overwrite)
        _save(document, out)
        say(f"results: {out}")
    if arguments.json:
        print_json(document)
        return 0
    print_table(pd.DataFrame(map(_flat, document["logs"])), "the released logs, and the model")
    held = [
        {"hardware": name, "what": what, **numbers}
        for name, block in document["hold_out"].items()
        for what, numbers in block["summary"].items()
    ]
    print_table(pd.DataFrame(held), "worst error on rows left out, over every choice of rows")
    print_table(pd.DataFrame(_claims(document)), "what the paper states, and the cells that say so")
    print_table(
        pd.DataFrame(
            {"ratio": one.name, "measured": one.measured, "model": one.modelled}
            | {"by budget": one.by_budget, "budget's share": f"{one.budget_share:.0%}"}
            for one in decompositions()
        ),
        "what the ratios are made of",
    )
    return 0


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    measured, model = row["measured"], row["model"]
    return {
        "run": row["run"],
        "tok/s": measured["tokens_per_second"],
        "model": model["tokens_per_second"],
        "error": f"{model['tokens_per_second'] / measured['tokens_per_second'] - 1:+.1%}",
        "peak GiB": measured["peak_gib"],
        "model GiB": model["peak_gib"],
        "memory error": f"{model['peak_gib'] / measured['peak_gib'] - 1:+.1%}",
        "decode bound": row["bound"]["decode"],
    }


def _claims(document: dict[str, Any]) -> Iterator[dict[str, str]]:
    for claim in document["claims"]:
        largest = max(claim["ratios"], key=lambda ratio: ratio["value"])
        yield {
            "claim": claim["claim"],
            "cells": "; ".join(claim["found_in"]) or "not found",
            "largest": f"{largest['value']:.2f} [{largest['low']:.2f}, {largest['high']:.2f}]",
        }


def _save(document: dict[str, Any], out: Path) -> None:
    from h2o_theory.costs.claims import decompositions
    from h2o_theory.figures.costs import CostSetting, waterfall_figure

    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / "costs.json", (json.dumps(document, indent=1) + "\n").encode())
    parts = {one.name: one for one in decompositions()}
    shown = (
        ("31x over DeepSpeed: OPT-30B, 512 + 512, a T4", "deepspeed opt-30b 512+512"),
        ("31x over Accelerate: the same", "accelerate opt-30b 512+512"),
        ("3.1x over FlexGen: OPT-6.7B, 512 + 1024, a T4", "flexgen opt-6.7b 512+1024"),
        ("2.3x over FlexGen: OPT-6.7B, 2048 + 2048, an A100", "table 5, batch 64 over 24"),
    )
    setting = CostSetting(
        "Measured: tables 3 and 5 of the H2O paper. Model: six constants fitted on four rows of "
        "the released logs of an A100, and three on three rows of a T4."
    )
    figure = waterfall_figure([(title, parts[name]) for title, name in shown], setting)
    save_figure(figure, out / "costs.png")
