"""The bundled trainer: data-parallel training that can be stopped and resumed at any step.

Start reading at ``train.py``, then ``rank_loop.py``. It keeps the same contract as any user command
(environment variables in, JSON lines of progress out, SIGTERM means finish the step and save) and
knows nothing of the control plane or of the agent.
"""
