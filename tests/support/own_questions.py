"""Questions of our own: they show that prompts, answers and eviction are put together rightly."""

from h2o_theory.experiments.questions import Question

QUESTIONS = tuple(
    (text, tuple(answers.split()), right)
    for text, answers, right in (
        ("What is the capital of France?", "Paris London Rome Madrid", 0),
        ("Which animal barks?", "cat dog cow fish", 1),
        ("What colour is the sky on a clear day?", "green red blue black", 2),
        ("How many legs does a spider have?", "four six ten eight", 3),
        ("What do bees make?", "honey milk wool bread", 0),
        ("Which planet do we live on?", "Mars Earth Venus Saturn", 1),
        ("What is frozen water called?", "steam sand ice smoke", 2),
        ("Which season comes after winter?", "autumn summer night spring", 3),
        ("What do we use to see?", "eyes ears feet hands", 0),
        ("What is two plus two?", "three four nine seven", 1),
        ("Which metal is attracted by a magnet?", "gold wood iron glass", 2),
        ("Who wrote Hamlet?", "Newton Mozart Darwin Shakespeare", 3),
        ("What is the opposite of hot?", "cold tall new fast", 0),
        ("Which fruit is long and yellow?", "cherry banana grape plum", 1),
        ("On which continent is Egypt?", "Asia Europe Africa Australia", 2),
        ("What do plants need to grow?", "salt paint paper light", 3),
        ("Which of these is a vegetable?", "carrot stone chair cloud", 0),
        ("What is the first month of the year?", "May January June October", 1),
        ("Which bird cannot fly?", "eagle swallow penguin pigeon", 2),
        ("How many days are in a week?", "five nine twelve seven", 3),
        ("What does a clock show?", "time weight colour taste", 0),
    )
)
"""Question, answers, index of the right one. The first 16 are asked; the others are examples."""

ASKED = 16


def own_questions(shots=(0, 1, 2, 3, 4, 5)):
    """The first 16 questions, each after so many examples: ``{shots: list of Question}``."""
    examples = [f"Q: {text}\nA: {answers[right]}\n\n" for text, answers, right in QUESTIONS[ASKED:]]
    return {
        count: [
            Question(
                tuple(
                    ("".join(examples[:count]) + f"Q: {text}\nA:", f" {answer}")
                    for answer in answers
                ),
                tuple(map(len, answers)),
                right,
            )
            for text, answers, right in QUESTIONS[:ASKED]
        ]
        for count in shots
    }
