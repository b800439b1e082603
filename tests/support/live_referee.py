"""The closed loop written plainly: one token at a time, sets of positions, no package code.

The full KV cache is kept and every query head attends in float64 over the positions that a
dictionary-based rule of ``reference`` still holds.
"""

import copy

import numpy as np
import torch
import transformers
from recorder_models import CACHE
from transformers.masking_utils import eager_mask

NAME = "plain_closed_loop"


class Referee:
    """Sets and rules by (layer, kv_head); ``make_rule(layer, kv_head)`` starts a new one.

    The budget is one number, or one for each (layer, kv_head).
    """

    def __init__(self, make_rule, budget, prefill=0, shared=False):
        self.make_rule, self.budget, self.prefill, self.shared = make_rule, budget, prefill, shared
        self.visible, self.rules, self.evicted_at = {}, {}, {}

    def attend(self, module, query, key, value, mask, scaling, softcap=None, s_aux=None, **_):
        layer, t = module.layer_idx, key.shape[2] - 1
        group = query.shape[1] // key.shape[1]
        hidden = set() if mask is None else set(np.flatnonzero(mask[0, 0, 0, : t + 1] < 0).tolist())
        heads = list(range(key.shape[1]))
        out = torch.zeros(1, 1, query.shape[1], value.shape[3], dtype=query.dtype)
        for unit in [heads] if self.shared else [[head] for head in heads]:
            name = (layer, unit[0])
            visible = self.visible.setdefault(name, [])
            visible.append(t)
            seen = [j for j in visible if j not in hidden]
            rows = []
            for head in unit:
                for g in range(head * group, (head + 1) * group):
                    logits = (key[0, head, seen].double() @ query[0, g, 0].double()) * scaling
                    if softcap is not None:
                        logits = softcap * torch.tanh(logits / softcap)
                    if s_aux is not None:
                        logits = torch.cat([logits, s_aux[g : g + 1].double()])
                    weights = torch.softmax(logits, dim=0)[: len(seen)]
                    out[0, 0, g] = (weights @ value[0, head, seen].double()).to(out.dtype)
                    # What a sink takes is missing from the row that a policy sees.
                    rows.append(dict(zip(seen, weights.tolist(), strict=True)))
            mean = {j: sum(row.get(j, 0.0) for row in rows) / len(rows) for j in visible}
            self.evict(name, t, visible, mean)
            for head in unit[1:]:
                self.evicted_at[layer, head] = self.evicted_at[name]
        return out, None

    def evict(self, name, t, visible, row):
        rule = self.rules.setdefault(name, self.make_rule(*name))
        schedule = self.evicted_at.setdefault(name, {})
        rule.see(t, row)
        budget = self.budget[name] if isinstance(self.budget, dict) else self.budget
        while t >= self.prefill - 1 and len(visible) >= budget:
            candidates = [j for j in visible if j not in rule.protected(t)]
            victim = min(candidates, key=lambda j: (rule.score(j, t, visible), j))
            visible.remove(victim)
            schedule[victim] = t

    def schedule(self, layers, heads, tokens):
        """``evicted_at`` as int array [layers, heads, tokens]."""
        return np.array(
            [
                [
                    [self.evicted_at[layer, head].get(j, tokens) for j in range(tokens)]
                    for head in range(heads)
                ]
                for layer in range(layers)
            ]
        )


def losses_token_by_token(model, ids, referee):
    """Losses [T - 1] of tokens 1.. of ids [1, T], from a copy of the model run by the referee."""
    transformers.AttentionInterface.register(NAME, referee.attend)
    transformers.AttentionMaskInterface.register(NAME, eager_mask)
    model = copy.deepcopy(model)
    model.set_attn_implementation(NAME)
    cache, losses = transformers.DynamicCache(), []
    with torch.no_grad():
        for t in range(ids.shape[1]):
            logits = model(ids[:, t : t + 1], **{CACHE: cache}, use_cache=True).logits[0, 0]
            if t + 1 < ids.shape[1]:
                losses.append(-torch.log_softmax(logits, dim=-1)[ids[0, t + 1]].item())
    return np.array(losses)
