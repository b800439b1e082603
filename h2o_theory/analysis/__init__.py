"""What attention concentrates on: heavy hitters, power laws, co-occurrence, sparsity."""

from h2o_theory.analysis.findings import Statement
from h2o_theory.analysis.run import Analysis, analyze
from h2o_theory.analysis.survey import Survey, survey_rows
from h2o_theory.analysis.words import Words, words_of

__all__ = ["Analysis", "Statement", "Survey", "Words", "analyze", "survey_rows", "words_of"]
