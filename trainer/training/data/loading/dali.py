"""NVIDIA DALI in place of the workers' decoding: JPEGs are decoded, cropped and scaled on the GPU.

The workers only read files; order, samples and draws are the loader's own, so that a run is as
exact as with the other reader, but its pixels differ from Pillow's by rounding. Needs
``nvidia-dali-cuda120`` (or 130); without a CUDA device the rank's own processor decodes. Only for
image files; everything else is read as always.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
import torch
import torch.utils.dlpack
from torch import Tensor

from trainer.protocol.train_options.data import DataOptions
from trainer.training.data.loading.batches import BatchReader, SampleRequest
from trainer.training.data.loading.data_parts import DataSet, EncodedPart
from trainer.training.data.loading.draws import uniforms
from trainer.training.data.loading.transforms import DRAWS, LEAST_RATIO, MOST_RATIO, ImageTransform
from trainer.training.training_errors import ConfigError

DECODER_THREADS = 4


class DaliReader(BatchReader):
    """Answers requests with files; ``finish`` decodes them on the rank's device."""

    def __init__(
        self, data: DataSet, options: DataOptions, seed: int, device: torch.device
    ) -> None:
        super().__init__(data, options, seed, device)
        if not data.photos:
            raise ConfigError("loader: dali reads image files only; use torch")
        try:
            self._dali: Any = importlib.import_module("nvidia.dali")
        except ImportError as error:
            raise ConfigError(
                "loader: dali needs NVIDIA DALI; add `pip install nvidia-dali-cuda120` to setup"
            ) from error
        self._device = device
        self._channels = options.channels
        self._pipelines: dict[tuple[bool, int], Any] = {}

    def finish(self, read: dict[str, Any], *, scoring: bool) -> Tensor:
        """The inputs as the model gets them."""
        count = len(read["labels"])
        transform = self.transform(scoring)
        if count == 0 or transform is None:
            inputs: Tensor = read["inputs"]
            return inputs
        key = (scoring, count)
        if key not in self._pipelines:
            self._pipelines[key] = self._pipeline(transform, count)
        pipeline = self._pipelines[key]
        pipeline.feed_input("files", read["files"])
        if transform.crop or transform.flip:  # DALI drops an input that nothing is made of
            pipeline.feed_input("draws", list(read["draws"].float().cpu().numpy()))
        (images,) = pipeline.run()
        # A copy: DALI takes its own memory back with the next batch.
        decoded: Tensor = torch.utils.dlpack.from_dlpack(images.as_tensor())
        return decoded.clone()

    def _read(self, request: SampleRequest) -> dict[str, Any]:
        part = self.data.part(request.part)
        assert isinstance(part, EncodedPart)
        drawn = torch.from_numpy(uniforms(self.seed, request.epochs, request.ids, DRAWS))
        found = [part.encoded(index) for index in request.ids.tolist()]
        return {
            "inputs": torch.zeros((len(found), 0)),
            "files": [np.frombuffer(file, np.uint8) for file, _ in found],
            "labels": torch.tensor([label for _, label in found], dtype=torch.int64),
            "ids": request.ids,
            "draws": drawn,
            "skipped": (),
        }

    def _pipeline(self, transform: ImageTransform, count: int) -> Any:
        """File → crop of the draws → size → mirror and scale, for ``count`` files at a time."""
        dali, fn, maths = self._dali, self._dali.fn, self._dali.math
        types = dali.types
        on_gpu = self._device.type == "cuda"
        pipeline = dali.Pipeline(
            batch_size=count,
            num_threads=DECODER_THREADS,
            device_id=(self._device.index or 0) if on_gpu else None,
            # One batch goes in and comes out: nothing runs ahead of what it was given.
            exec_pipelined=False,
            exec_async=False,
        )
        with pipeline:
            files, draws = fn.external_source(name="files"), fn.external_source(name="draws")
            shape = fn.peek_image_shape(files)
            tall = fn.cast(shape[0:1], dtype=types.FLOAT)
            wide = fn.cast(shape[1:2], dtype=types.FLOAT)
            kind = types.RGB if self._channels == 3 else types.GRAY
            images = fn.decoders.image(files, device="mixed" if on_gpu else "cpu", output_type=kind)
            if transform.crop:
                low, high = transform.area
                pixels = (low + draws[0:1] * (high - low)) * tall * wide
                ratios = math.log(LEAST_RATIO), math.log(MOST_RATIO)
                ratio = maths.exp(ratios[0] + draws[1:2] * (ratios[1] - ratios[0]))
                height = maths.min(tall, maths.sqrt(pixels / ratio))
                width = maths.min(wide, maths.sqrt(pixels * ratio))
                top, left = draws[2:3] * (tall - height), draws[3:4] * (wide - width)
            else:
                height = width = maths.min(tall, wide) * transform.centre
                top, left = (tall - height) / 2, (wide - width) / 2
            images = fn.resize(
                images,
                size=list(transform.shape[1:]),
                roi_start=fn.cat(top, left),
                roi_end=fn.cat(top + height, left + width),
                antialias=True,
            )
            mirror = fn.cast(draws[4] < 0.5, dtype=types.INT32) if transform.flip else 0
            output = fn.crop_mirror_normalize(
                images,
                mirror=mirror,
                mean=[each * 255 for each in transform.mean],
                std=[each * 255 for each in transform.deviation],
                dtype=types.FLOAT,
                output_layout="CHW",
            )
            pipeline.set_outputs(output)
        pipeline.build()
        return pipeline
