"""The data: where samples come from, what is done to each, and the order in which they are seen.

``load_data`` opens a data set by name, path or URL; ``loader.Loader`` gives its batches to the
loop. Everything random about a sample is a pure function of (seed, epoch, sample number), so
neither the number of workers or ranks nor an interruption changes what is trained on. Nothing
imported here loads PyTorch; ``loader``, ``batches`` and ``transforms`` do.
"""

from trainer.training.data.loading.data_parts import DataSet, Part
from trainer.training.data.loading.order import Indices, SampleOrder
from trainer.training.data.sources.load import DATA_SETS, load_data

__all__ = ["DATA_SETS", "DataSet", "Indices", "Part", "SampleOrder", "load_data"]
