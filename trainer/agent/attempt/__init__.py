"""One attempt on one machine: prepare it, start its trainer, see how it ends."""
