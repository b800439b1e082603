"""What the figures of an analysis are about, in the words that captions use."""

from dataclasses import dataclass

from h2o_theory.figures.table import count

__all__ = ["Subject"]


@dataclass(frozen=True)
class Subject:
    """The setting of an analysis.

    Attributes
    ----------
    model, trace, text : str
    tokens, heads, layers, n_sink : int
        Length T; kv_heads and layers analysed; positions set apart as sinks.
    share : float
        Heavy hitters as a share of the positions.
    """

    model: str
    trace: str
    text: str
    tokens: int
    heads: int
    layers: int
    n_sink: int
    share: float

    @classmethod
    def of(cls, analysis):
        """The setting of an :class:`~h2o_theory.analysis.Analysis`."""
        survey = analysis.survey
        spec = survey.trace.spec
        return cls(
            model=str(spec.model.get("id", "unknown model")),
            trace=survey.trace.name,
            text=str(spec.text.get("name", "unknown text")),
            tokens=survey.tokens,
            heads=len(survey.heads),
            layers=len(survey.layers),
            n_sink=survey.n_sink,
            share=survey.share,
        )

    def sentence(self):
        """Model, trace, text, length and number of heads, as one caption line."""
        return (
            f"{self.model} · trace {self.trace} · text {self.text} · T = {self.tokens} tokens · "
            f"{count(self.heads, 'kv_head')} in {count(self.layers, 'layer')} · full cache"
        )

    def heavy_hitters(self):
        """What a heavy hitter is here, as a noun phrase."""
        return (
            f"the {100 * self.share:g} % of positions with the most attention so far, the first "
            f"{self.n_sink} (sinks) set apart"
        )
