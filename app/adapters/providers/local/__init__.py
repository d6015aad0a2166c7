"""The local provider: a small cloud of processes on this machine, with recorded markets.

`provider` and `price_source` are what the control plane uses; `cloud` is the daemon behind them.
"""
