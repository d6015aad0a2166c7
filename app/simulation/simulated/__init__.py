"""The simulated world: clouds, markets, machines, agents, trainers, people."""
