"""The model and its optimizer on one rank: one optimizer step, scoring, and their saved state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from trainer.training.checkpoint import own_tensors
from trainer.training.config import TrainConfig
from trainer.training.data import DataSet
from trainer.training.data.loading.batches import MicroBatch, zero_batch
from trainer.training.gang.distributed import Gang
from trainer.training.gang.shared_model import SharedModel, placed_like
from trainer.training.kernels import compilation
from trainer.training.kernels.float8 import use_float8
from trainer.training.kernels.number_formats import (
    autocast,
    choose_kernels,
    gradient_scaler,
    require_precision,
)
from trainer.training.loop import module_state, randomness
from trainer.training.loop.averages import batch_norms, make_averages, statistics_anew
from trainer.training.loop.memory_plan import MemoryPlan
from trainer.training.loop.objective import accuracies, loss_sum_of
from trainer.training.loop.optimizer import clip_gradients, make_optimizer
from trainer.training.loop.passes import Passes, StopAsked, never, placed
from trainer.training.loop.recomputing import recompute_blocks
from trainer.training.loop.step_start import StepStart
from trainer.training.models import build_model, model_blocks
from trainer.training.training_errors import ConfigError, StepOutOfMemoryError


class Learner:
    """What is learned. All ranks hold equal weights, or their part of them, after every step."""

    def __init__(self, config: TrainConfig, gang: Gang, data: DataSet) -> None:
        """Raises ``ConfigError`` when this machine cannot do what the configuration asks for."""
        require_precision(config.precision, gang.device)
        choose_kernels(config.precision, config.deterministic)
        self.config = config
        self.gang = gang
        self._data = data
        torch.manual_seed(config.seed)
        model = build_model(config.model, data.shape, data.classes, config.model_options)
        module_state.require_storable_state(model)
        self._has_extra_state = bool(module_state.extra_state_keys(model))
        self.model = placed(model, config, gang.device)
        if config.precision == "fp8":
            use_float8(self.model)
        self.plan = MemoryPlan(least=2 if batch_norms(self.model) else 1)
        if config.activation_checkpointing:
            self._recompute()
        self.shared = SharedModel(self.model, config, gang)
        self.is_compiled = compilation.is_compiled(config, gang.device)
        call = self.shared.call
        if self.is_compiled:
            call = compilation.compiled(call, config)
        self._compiled_code: Tensor | None = None
        self.optimizer = make_optimizer(config, self.model)
        self.scaler = gradient_scaler(config.precision, gang.device)
        self.averages = make_averages(config, self.model)
        least = self.plan.least
        self._passes = Passes(
            config, gang, data, self.shared, call, self.optimizer, self.scaler, least
        )
        self._adapts = config.on_oom == "adapt"
        randomness.seed_rank(config.seed, 0, gang.rank)

    def prepare(self) -> None:
        """Runs one throw-away pass where the first one is special; nothing is changed by it.

        A compiled model is compiled in it. DistributedDataParallel regroups the gradients after its
        first backward pass, and with three or more ranks the grouping decides in which order they
        are added up: a resumed run would add its first step in another order. Raises
        ``StepOutOfMemoryError``, as ``step`` does.
        """
        if not self.shared.buckets_settle and not self.is_compiled:
            return
        start = StepStart(self.model, self.gang.device)
        count = 2
        if self.is_compiled:  # for this number of samples
            count = self.plan.micro_batch(self.config, self.gang.world_size)
        loss_sum, problem = self._passes.run([zero_batch(self._data, count, self.gang.device)])
        self.optimizer.zero_grad(set_to_none=True)
        start.put_back()
        if loss_sum is None:
            raise StepOutOfMemoryError(problem)

    def step(
        self,
        micro_batches: list[MicroBatch],
        learning_rate: float,
        stop_asked: StopAsked = never,
    ) -> Tensor | None:
        """One optimizer step on this rank's share of the global batch.

        Returns the summed loss of that share, on the device. Each sample's loss is weighted by the
        global batch, so the step is the same mean whatever the ranks and however uneven the shares.
        None, and nothing has changed, when a rank's ``stop_asked`` said so between two
        micro-batches. Raises ``StepOutOfMemoryError``, on all ranks and with nothing
        changed where ``on_oom`` is adapt.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        can_go_back = self._adapts or len(micro_batches) > 1
        start = StepStart(self.model, self.gang.device) if can_go_back else None
        loss_sum, problem = self._passes.run(micro_batches, stop_asked)
        if loss_sum is None:
            if problem and not self._adapts:
                raise StepOutOfMemoryError(problem)
            self.optimizer.zero_grad(set_to_none=True)
            assert start is not None
            start.put_back()
            if problem:
                raise StepOutOfMemoryError(problem)
            return None
        self.shared.average_gradients()
        self._move_weights()
        return loss_sum

    def shrink(self) -> bool:
        """Takes the next smaller plan for the memory; False when there is none. Alike on all."""
        blocks = model_blocks(self.model)
        can_recompute = bool(blocks) and not self.config.activation_checkpointing
        plan = self.plan.smaller(self.config, self.gang.world_size, can_recompute)
        if plan is not None:
            self._follow(plan)
        return plan is not None

    def score(self, batches: Iterable[MicroBatch], samples: int) -> dict[str, float]:
        """Accuracy and mean loss over the ``samples`` of all ranks, of equally many ``batches`` on
        each; what these raise ends it.
        """
        correct = torch.zeros((), dtype=torch.float64, device=self.gang.device)
        loss_sum = torch.zeros_like(correct)
        self.gang.share_buffers(self.model)
        self.model.eval()
        try:
            for batch in batches:
                with torch.no_grad(), autocast(self.config.precision, self.gang.device):
                    if len(batch) > 0:
                        scores = self.model(batch.inputs)
                        correct += accuracies(scores, batch.labels).sum()
                        loss_sum += loss_sum_of(scores, batch.labels)
                    elif self.shared.sharded:  # the others need this rank's part of the model
                        self.model(zero_batch(self._data, 1, self.gang.device).inputs)
        finally:
            self.shared.end_scoring()
            self.model.train()
        correct_sum, total_loss = self.gang.sum(correct.item(), loss_sum.item())
        return {"accuracy": correct_sum / samples, "loss": total_loss / samples}

    def adopt_average(self, batches: Iterable[MicroBatch]) -> None:
        """At the end of an even average: makes it the model, with statistics of its own.

        ``batches`` are of the training data; their statistics are rank 0's, as always.
        """
        if self.averages is None or self.averages.adopted or self.averages.count == 0:
            return
        self.averages.adopt()
        with torch.no_grad(), statistics_anew(self.model):
            for batch in batches:
                with autocast(self.config.precision, self.gang.device):
                    if len(batch) > 0:
                        self.model(batch.inputs)
        self.shared.end_scoring()
        self.gang.share_buffers(self.model)

    def weights(self) -> dict[str, Any]:
        """The model's state dict, extra states as the first rank has them: a collective then."""
        weights: dict[str, Any] = self.model.state_dict()
        if self._has_extra_state:
            mine = module_state.extra_states(self.model)
            if self.gang.world_size > 1:
                mine = self.gang.from_first(own_tensors(mine, Tensor.cpu))
            weights.update(mine)
        return weights

    def own_state(self) -> dict[str, Any]:
        """What this rank has besides; {} for nothing. Of buffers that are alike at the start of
        each step the first rank's are enough.
        """
        weights, rank = self.model.state_dict(), self.gang.rank
        return module_state.own_state(self.model, weights, rank, apart=self.shared.sharded)

    def training_state(self) -> dict[str, Any]:
        """All but the weights, which are saved beside it: plain values and tensors."""
        state: dict[str, Any] = {
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "memory_plan": asdict(self.plan),
        }
        if self.averages is not None:
            state["averages"] = self.averages.state()
        if self.is_compiled and self._compiled_code is None:
            self._compiled_code = compilation.compiled_code()
        if self._compiled_code is not None:
            state["compiled_code"] = self._compiled_code
        return state

    def load(
        self, weights: dict[str, Any], state: dict[str, Any], own_state: Mapping[str, Any]
    ) -> None:
        """Puts back weights and state, both whole tensors; each rank keeps its part of them.

        own_state: as this rank's ``own_state`` was, or the first rank's.
        """
        own = self.model.state_dict()
        extra = {
            key: module_state.placed_extra_state(saved, own[key], self.gang.device)
            for key, saved in {**weights, **own_state.get(module_state.EXTRA_STATES, {})}.items()
            if key in module_state.extra_state_keys(self.model)
        }
        tensors = {
            name: placed_like(value, own[name])
            for name, value in weights.items()
            if name not in extra
        }
        self.model.load_state_dict({**tensors, **extra})
        buffers = own_state.get(module_state.BUFFERS, {})
        module_state.put_back(self.model, {module_state.BUFFERS: buffers})
        self.optimizer.load_state_dict(self._own_part(state["optimizer"]))
        self.scaler.load_state_dict(state["scaler"])
        if self.averages is not None and "averages" in state:
            saved = state["averages"]
            tensors = {
                name: placed_like(each, own[name]) for name, each in saved["tensors"].items()
            }
            self.averages.load({**saved, "tensors": tensors})
        elif self.averages is not None:
            self.averages.begin_anew()
        if self.is_compiled and "compiled_code" in state:
            compilation.load_compiled_code(state["compiled_code"])
        if self._adapts and "memory_plan" in state:
            self._follow(MemoryPlan(**state["memory_plan"]))

    def _move_weights(self) -> None:
        if self.config.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            clip_gradients(self.model, self.config.clip_norm)
        if self.scaler.is_enabled():
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _follow(self, plan: MemoryPlan) -> None:
        if plan.recompute and not self.plan.recompute:
            self._recompute()
        self.plan = plan

    def _recompute(self) -> None:
        blocks = model_blocks(self.model)
        if not blocks:
            raise ConfigError(
                f"activation_checkpointing: {self.config.model} has no repeated blocks to recompute"
            )
        recompute_blocks(blocks)

    def _own_part(self, saved: dict[str, Any]) -> dict[str, Any]:
        """An optimizer's saved state with this rank's part of every tensor."""
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        states = {
            number: {
                key: placed_like(value, parameters[number])
                if isinstance(value, Tensor) and value.shape == parameters[number].shape
                else value
                for key, value in state.items()
            }
            for number, state in saved["state"].items()
        }
        # Which kernel moves the weights is this machine's to choose, not the checkpoint's.
        groups = [
            {**group, **{name: own[name] for name in ("fused", "foreach")}}
            for group, own in zip(saved["param_groups"], self.optimizer.param_groups, strict=True)
        ]
        return {**saved, "state": states, "param_groups": groups}
