"""A Keras model trained by TensorFlow on one machine or many, through interruptions.

`TF_CONFIG` is made from what Lowtide says about the gang; Keras's own BackupAndRestore keeps the
place, and the callback here publishes its folder as the checkpoint. Keras goes on at the beginning
of an epoch, so an epoch here is what fits into a cloud's notice: some seconds of work.
"""

import json
import os
import shutil
from pathlib import Path

from lowtide_hooks import Hooks

PORT = 22_222
NODES = os.environ.get("LOWTIDE_NODE_IPS", "127.0.0.1").split()
RANK = int(os.environ.get("LOWTIDE_NODE_RANK", "0"))
hooks = Hooks()
if len(NODES) > 1:  # before TensorFlow is imported
    workers = [f"{address}:{PORT}" for address in NODES]
    task = {"type": "worker", "index": RANK}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

EPOCHS = int(os.environ.get("EPOCHS", "10"))
STEPS_PER_EPOCH = 20
BATCH = 64
BACKUP = Path("backup")


class Drain(tf.keras.callbacks.Callback):
    """Stops when asked to, publishes what BackupAndRestore has written, tells the progress."""

    def __init__(self) -> None:
        super().__init__()
        self.draining = False
        self.step = 0

    def on_train_begin(self, logs=None):
        self.step = int(self.model.optimizer.iterations.numpy())
        print(f"starts after step {self.step}", flush=True)

    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        hooks.progress(self.step, EPOCHS * STEPS_PER_EPOCH, loss=(logs or {}).get("loss"))

    def on_epoch_end(self, epoch, logs=None):
        last = epoch + 1 == EPOCHS

        def write(folder):
            shutil.copytree(BACKUP, folder / BACKUP.name)

        hooks.save(self.step, write, final=last)
        self.draining = not last and hooks.should_drain()
        self.model.stop_training = self.draining


def main() -> None:
    if folder := hooks.resume():
        shutil.rmtree(BACKUP, ignore_errors=True)
        shutil.copytree(folder / BACKUP.name, BACKUP)
    gpus = tf.config.list_physical_devices("GPU")
    print(f"trains on {[gpu.name for gpu in gpus] or 'the CPU'}", flush=True)
    if len(NODES) > 1:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()  # all GPUs of all machines
    elif len(gpus) > 1:
        strategy = tf.distribute.MirroredStrategy()
    else:
        strategy = tf.distribute.get_strategy()  # the GPU, or the CPU
    with strategy.scope():
        tf.keras.utils.set_random_seed(0)
        model = tf.keras.Sequential(
            [
                tf.keras.Input((2,)),
                tf.keras.layers.Dense(64, activation="relu"),
                tf.keras.layers.Dense(2),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss)
    points = np.random.RandomState(0).standard_normal((BATCH * STEPS_PER_EPOCH, 2)).astype("f4")
    labels = (np.linalg.norm(points, axis=1) > 1.2).astype("i8")
    data = tf.data.Dataset.from_tensor_slices((points, labels)).batch(BATCH)
    backup = tf.keras.callbacks.BackupAndRestore(str(BACKUP), delete_checkpoint=False)
    drain = Drain()
    model.fit(data, epochs=EPOCHS, callbacks=[backup, drain], verbose=0)
    if drain.draining:
        hooks.leave_drained(drain.step)
    hooks.finish(drain.step)


if __name__ == "__main__":
    main()
