"""Periods and bounds of every verb. Not here: their making from settings (`app.bootstrap`)."""

from __future__ import annotations

from dataclasses import dataclass

from app.domain.wording.stop_words import STOP_NOW_SECONDS


@dataclass(frozen=True)
class Limits:
    """Periods and bounds, in seconds; defaults suit real clouds, the local cloud is quicker.

    agent_lease_seconds: how long a machine may train without an answer from us.
    survivor_hold_seconds: how long idle survivors are kept for the next attempt.
    launch_operation_seconds: how long a cloud's own operation of a launch is followed; far longer
    than one takes, and past it what is found under the launch's token decides.
    image_seconds, inputs_seconds: what the pull of an image and the download of inputs may add to
    the preparation.
    quote_age_max_seconds: an older price is not acted on.
    on_demand_acquire_seconds: reserve for acquiring on-demand machines before a deadline.
    outlook_seconds: how often a gang's price and hazard are looked at anew, beside the ages of its
    machines at which the hazard changes.
    migration_look_seconds, migration_rest_seconds: how often a running job is compared with other
    pools, and how long it is left alone after a start, a move or one that came to nothing.
    migration_saving_share, migration_saving_microusd: what a move must save at least, of what is
    left to pay and in all; a share of 1 or more means never.
    slower_pace_seconds: a pace that would force a job off spot before its estimate does is believed
    once it was seen for so long.
    return_rest_seconds: a job that has changed its market is not taken back to spot before that.
    return_room_share: of the work left that must be to spare for it, or twice a restart.
    return_saving_share, return_saving_microusd: what it must save, of the cost to the end and in
    all.
    resize_seconds: how long a running gang keeps its size at least, and how often that is judged.
    boot_p95_seconds, restore_seconds: used until a pool's own times are learned.
    start_up_seconds, start_up_p95_seconds: of one job, from its trainer's start to its first step,
    usually and at worst (`own_limits`); 0 of a deployment, which knows none.
    """

    report_interval_seconds: float = 10.0
    agent_lease_seconds: float = 1800.0
    registration_timeout_seconds: float = 600.0
    provisioning_seconds: float = 1800.0
    launches_per_attempt_max: int = 20
    launch_operation_seconds: float = 900.0
    preparing_seconds: float = 1800.0
    image_seconds: float = 3600.0
    inputs_seconds: float = 21_600.0
    drain_seconds: float = 90.0
    stop_now_seconds: float = STOP_NOW_SECONDS
    settle_seconds: float = 60.0
    survivor_hold_seconds: float = 600.0
    next_look_seconds: float = 30.0
    describe_seconds: float = 30.0
    describe_soon_seconds: float = 3.0
    absence_age_seconds: float = 120.0
    absence_gap_seconds: float = 10.0
    sweep_seconds: float = 60.0
    price_refresh_seconds: float = 60.0
    quote_age_max_seconds: float = 21_600.0
    accrual_seconds: float = 60.0
    force_silence_seconds: float = 600.0
    on_demand_acquire_seconds: float = 1800.0
    boot_p95_seconds: float = 300.0
    restore_seconds: float = 60.0
    start_up_seconds: float = 0.0
    start_up_p95_seconds: float = 0.0
    launch_token_seconds: float = 900.0
    listening_gap_seconds: float = 15.0
    cost_settle_seconds: float = 5.0
    resize_seconds: float = 1800.0
    outlook_seconds: float = 1800.0
    migration_look_seconds: float = 1800.0
    migration_rest_seconds: float = 1800.0
    migration_saving_share: float = 0.10
    migration_saving_microusd: int = 100_000
    slower_pace_seconds: float = 60.0
    return_rest_seconds: float = 1800.0
    return_room_share: float = 0.10
    return_saving_share: float = 0.10
    return_saving_microusd: int = 100_000

    @property
    def restart_seconds(self) -> float:
        """From the request of machines until work goes on there, as expected.

        Boot until they register, restore until the trainer's process starts, then its start-up:
        each begins where the one before ends.
        """
        return self.boot_p95_seconds + self.restore_seconds + self.start_up_seconds
