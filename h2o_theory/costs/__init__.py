"""From a budget to tokens per second: a model of what one generation costs."""
