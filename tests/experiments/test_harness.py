"""Tasks of lm-evaluation-harness, with the real package: what it reports is what `full` gets."""

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers
from recorder_models import VOCABULARY, tiny_model, tokens

from h2o_theory.cli import main
from h2o_theory.errors import BadArgument, TaskError, UnknownName
from h2o_theory.experiments import Study, load_result
from h2o_theory.experiments import questions as questions_module
from h2o_theory.experiments.choice import multiple_choice
from h2o_theory.experiments.harness import questions_from_harness
from h2o_theory.experiments.questions import encode_question, question_length
from h2o_theory.policies import make_policy
from h2o_theory.recorder.models import LoadedModel

lm_eval = pytest.importorskip("lm_eval", reason="the package lm-eval is not installed")

PAPER_TASKS = {
    "copa": {
        "premise": "w3 w4.",
        "question": "cause",
        "choice1": "W5 w6",
        "choice2": "W7",
        "label": 1,
    },
    "mathqa": {
        "Problem": "w3 w4",
        "options": "a ) w5 , b ) w6 w7 , c ) w8 , d ) w9 , e ) w10",
        "correct": "c",
    },
    "openbookqa": {
        "question_stem": "w3 w4",
        "choices": {"text": ["w5 w6", "w7", "w5 w8", "w9"], "label": ["A", "B", "C", "D"]},
        "answerKey": "D",
    },
    "piqa": {"goal": "w3 w4", "sol1": "w5 w6 w7", "sol2": "w5 w6 w8", "label": 1},
    "rte": {"sentence1": "w3 w4", "sentence2": "w5", "label": 0},
    "winogrande": {"sentence": "w3 w4 _ w5 w6", "option1": "w7", "option2": "w8", "answer": "2"},
}
"""A document of each, of our own, in the form of its data set; the right answer differs."""


@pytest.fixture(scope="module")
def defaults():
    """The harness's own tasks of these tests: to read all of its 14,000 files takes it 15 s."""
    from lm_eval.tasks import TaskManager

    own = Path(lm_eval.__file__).parent / "tasks"
    folders = ("super_glue", "mathqa", "openbookqa", "piqa", "glue", "winogrande", "mmlu")
    paths = [str(own / name) for name in folders]
    return TaskManager(include_path=paths, include_defaults=False)


@pytest.fixture(autouse=True)
def read_once(monkeypatch, defaults):
    real = type(defaults)

    def manager(include_path=None, include_defaults=True):
        return defaults if include_defaults else real(None, include_path, include_defaults)

    monkeypatch.setattr("lm_eval.tasks.TaskManager", manager)


@pytest.fixture(scope="module")
def tokenizer():
    words = {f"w{number}": number for number in range(VOCABULARY)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="w0", eos_token="w1"
    )


@pytest.fixture
def study(tmp_path, tokenizer):
    model = LoadedModel(tiny_model("llama"), tokenizer, "tiny", "llama", "", "test")
    return Study(model, tokens(64), tmp_path / "out", tokens=64)


def documents(count, seed=0):
    """Questions of six words, three answers of one to three."""
    rng = np.random.default_rng(seed)

    def words(n):
        return " ".join(f"w{number}" for number in rng.integers(3, VOCABULARY, size=n))

    return [
        {
            "q": words(6),
            "choices": [words(int(rng.integers(1, 4))) for _ in range(3)],
            "right": int(rng.integers(3)),
        }
        for _ in range(count)
    ]


QUESTIONS = {
    "output_type": "multiple_choice",
    "test_split": "test",
    "doc_to_text": "Q: {{q}}\nA:",
    "doc_to_choice": "choices",
    "doc_to_target": "right",
    "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
}


def own_task(folder, name="mine", splits=None, config=QUESTIONS, **changes):
    """Write a task of our own; what JSON writes is YAML too."""
    files = {}
    for split, rows in (splits or {"test": documents(20)}).items():
        files[split] = str(folder / f"{name}-{split}.jsonl")
        with open(files[split], "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    data = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files, "cache_dir": str(folder / "cache")},
    }
    (folder / f"{name}.yaml").write_text(json.dumps(data | config | changes))
    return name


def reported(task, folder, tokenizer, shots, limit):
    """What the harness says of the model without eviction: acc, acc_norm, sums by document."""
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=tiny_model("llama"), tokenizer=tokenizer, batch_size=1, device="cpu")
    found = lm_eval.simple_evaluate(
        model=model,
        tasks=[task],
        num_fewshot=shots,
        limit=limit,
        task_manager=lm_eval.tasks.TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
    )
    samples = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
    sums = [[answer[0][0] for answer in sample["resps"]] for sample in samples]
    return found["results"][task]["acc,none"], found["results"][task]["acc_norm,none"], sums


def test_the_full_cache_has_the_accuracy_that_the_harness_reports(tmp_path, study, tokenizer):
    splits = {"test": documents(20), "train": documents(9, seed=1)}
    task = own_task(tmp_path, splits=splits, training_split="train")
    questions = questions_from_harness(task, shots=(0, 2), limit=12, folder=tmp_path)
    result = multiple_choice(study, questions=questions, task=task, policies=("h2o",))
    table = result.table.set_index(["arm", "shots"])
    for shots in (0, 2):
        accuracy, by_length, sums = reported(task, tmp_path, tokenizer, shots, 12)
        row = table.loc["full", shots]
        assert (row["n"], row["accuracy"], row["accuracy_norm"]) == (12, accuracy, by_length)
        for question, expected in zip(questions[shots], sums, strict=True):
            answers = encode_question(tokenizer, question)
            everything = make_policy("full"), question_length(answers)
            found = questions_module._score(study.model.model, *everything, answers)
            assert found == pytest.approx(expected, abs=1e-4)
    assert result.setting["task"] == task and "of 12 questions" in result.answer


def test_targets_may_be_an_index_or_the_text_of_an_answer(tmp_path):
    rows = documents(5)
    wordings = {
        "index": {},
        "text": {"doc_to_target": "{{choices[right]}}"},
        "template": {"doc_to_choice": "{{choices}}", "doc_to_target": "{{right}}"},
    }
    found = [
        questions_from_harness(
            own_task(tmp_path, name, {"test": rows}, **changes), folder=tmp_path
        )[0]
        for name, changes in wordings.items()
    ]
    assert found[0] == found[1] == found[2] and len(found[0]) == 5
    for question, row in zip(found[0], rows, strict=True):
        assert question.right == row["right"]
        assert question.lengths == tuple(map(len, row["choices"]))
        prompt = f"Q: {row['q']}\nA:"
        assert question.pairs == tuple((prompt, f" {answer}") for answer in row["choices"])
    two = questions_from_harness("index", shots=(1,), limit=2, folder=tmp_path)[1]
    assert len(two) == 2 and all(q.pairs[0][0].count("Q: ") == 2 for q in two)
    assert len(questions_from_harness("index", limit=99, folder=tmp_path)[0]) == 5


@pytest.mark.parametrize("name", PAPER_TASKS)
def test_the_papers_tasks_by_the_harness_s_definitions(name, tmp_path, study, defaults):
    """The definitions are the package's; only the documents are ours."""
    changes = {"dataset_name": None, "training_split": None, "test_split": None}
    own_task(
        tmp_path,
        name,
        {"validation": [PAPER_TASKS[name]] * 2},
        {"include": str(defaults.task_index[name].yaml_path)},
        **changes,
    )
    questions = questions_from_harness(name, folder=tmp_path)
    places = {"copa": 1, "mathqa": 2, "openbookqa": 3, "piqa": 1, "rte": 0, "winogrande": 1}
    assert [question.right for question in questions[0]] == [places[name]] * 2
    befores = {before for before, _ in questions[0][0].pairs}
    assert len(befores) == (2 if name == "winogrande" else 1)
    result = multiple_choice(study, questions=questions, policies=("recent",), budget="50%")
    assert result.table["accuracy"].isin((0, 1)).all()


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"output_type": "generate_until"}, "no choices"),
        ({"doc_to_target": "late"}, "not one of the answers"),
        ({"doc_to_target": "{{[right]}}"}, "not one of the answers"),
        ({"doc_to_target": "w0 of none"}, "not one of the answers"),
        ({"doc_to_choice": "numbers"}, "cannot be built"),
        ({"doc_to_choice": "gaps"}, "not text"),
        ({"doc_to_text": "{{q | nothing}}"}, "cannot be built"),
        ({"test_split": "dev"}, "cannot be built"),
        ({"doc_to_image": ["q"]}, "beside text"),
        ({"dataset_kwargs": {"data_files": "nowhere.jsonl"}}, "cannot be reached"),
        ({"dataset_path": "nobody/nothing", "dataset_kwargs": {}}, "cannot be reached"),
    ],
)
def test_what_is_no_multiple_choice_is_refused(changes, words, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    odd = {"numbers": [1, 2, 3], "gaps": ["w3", "w4", None], "late": 3}
    rows = [row | odd for row in documents(3)]
    rows[0] |= {"gaps": ["w3", "w4", "w5"], "late": 0}  # the harness looks at the first itself
    task = own_task(tmp_path, "odd", {"test": rows}, **changes)
    with pytest.raises(TaskError, match=words):
        questions_from_harness(task, folder=tmp_path)


def test_a_rule_of_its_own_and_too_few_examples_are_refused(tmp_path):
    (tmp_path / "rule.py").write_text("def judge(doc, results):\n    return {'acc': 1.0}\n")
    own_task(tmp_path, "judged")
    path = tmp_path / "judged.yaml"
    path.write_text(path.read_text()[:-1] + ', "process_results": !function rule.judge}')
    with pytest.raises(TaskError, match="a rule of its own"):
        questions_from_harness("judged", folder=tmp_path)
    task = own_task(tmp_path, splits={"test": documents(3)})
    with pytest.raises(TaskError, match="does not fit"):
        questions_from_harness(task, shots=(0, 4), folder=tmp_path)


def test_unknown_tasks_and_wrong_arguments_are_named(tmp_path):
    own_task(tmp_path)
    with pytest.raises(UnknownName, match="piqa"):
        questions_from_harness("piqqa")
    with pytest.raises(UnknownName, match=r"mime: .*no such task.*mine.*counts as missing"):
        questions_from_harness("mime", folder=tmp_path)
    with pytest.raises(UnknownName, match="group of tasks"):
        questions_from_harness("mmlu")
    for wrong in ({"limit": 0}, {"shots": (-1,)}, {"folder": tmp_path / "none"}):
        with pytest.raises(BadArgument):
            questions_from_harness("mine", **{"folder": tmp_path, **wrong})


def test_the_command_asks_a_task_and_resumes(tmp_path, tokenizer, capsys, monkeypatch):
    tiny_model("llama").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{number}" for number in tokens(70)[0].tolist()))
    (tmp_path / "tasks").mkdir()
    own_task(tmp_path / "tasks")
    command = ["experiment", "choice", "--model", str(tmp_path / "model"), "--text", str(text)]
    command += ["--out", str(tmp_path / "out"), "--policy", "h2o", "--shots", "0,2"]
    command += ["--task", "mine", "--task-folder", str(tmp_path / "tasks")]
    original, scored = questions_module._score, []

    def stopped(*arguments):
        if len(scored) == 18:
            raise KeyboardInterrupt
        scored.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(questions_module, "_score", stopped)
    assert main(command) == 130  # two questions after the first sixteen
    monkeypatch.setattr(questions_module, "_score", lambda *a: scored.append(a) or original(*a))
    assert main(command) == 0
    assert len(scored) == 18 + 2 * 2 * 20 - 16
    result = load_result(tmp_path / "out" / "choice.json")
    assert result.table["n"].tolist() == [20] * 4 and result.setting["task"] == "mine"
    capsys.readouterr()
    assert main([*command, "--limit", "16", "--json"]) == 0
    assert len(scored) == 18 + 2 * 2 * 20 - 16  # the first sixteen were asked before
    assert [row["n"] for row in json.loads(capsys.readouterr().out)["table"]] == [16] * 4
    assert main([*command, "--task", "mien"]) == 2
    assert "UnknownName" in capsys.readouterr().err
