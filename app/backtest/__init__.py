"""Placement policies replayed over recorded availability and prices; see `lowtide backtest`.

Here: recordings, the cells of a comparison, the replay of one job, the omniscient optimum,
published policies, and the tables. Not here: Lowtide's own policy (`app.domain`), which is only
called, or the controllers' simulator (`app.simulation`).
"""
