"""The paper's experiments at reduced scale, run in the model, each with intervals."""
