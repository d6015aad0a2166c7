"""Random walks: a job with its attempts, a gang member by member, and a machine under a cloud.

Each walk keeps a small model of the world beside the tables and checks what must hold after every
step, whatever order the events come in.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from app.domain.lifecycle.attempt import (
    ATTEMPT_TRANSITIONS,
    AttemptEvent,
    AttemptState,
    DrainCause,
    all_drained,
    drain_ordered,
    verdict_event,
)
from app.domain.lifecycle.attempt_verdict import MemberEnd, MemberOutcome, settle
from app.domain.lifecycle.end_reason import EndReason
from app.domain.lifecycle.instance import (
    INSTANCE_TRANSITIONS,
    InstanceEvent,
    InstanceState,
    events_for,
)
from app.domain.lifecycle.job import (
    ATTEMPT_JOB_STATES,
    CLAIMABLE_JOB_STATES,
    JOB_TRANSITIONS,
    JobEvent,
    JobState,
    StopCause,
    event_for_stop,
    event_when_attempt_ended,
    raise_stop_cause,
    stop_end_reason,
)
from app.domain.lifecycle.retry_policy import ending_of
from app.domain.lifecycle.transition_table import IllegalTransition

WALKS = settings(max_examples=40, stateful_step_count=30, deadline=None)


class JobWalk(RuleBasedStateMachine):
    """A job whose attempts start, settle and end while people and limits order it to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.job = JobState.QUEUED
        self.attempt: AttemptState | None = None
        self.stop_cause: StopCause | None = None
        self.drain: DrainCause | None = None
        self.ever_trained = False
        self.final_state: JobState | None = None

    def apply_to_job(self, event: JobEvent) -> None:
        self.job = JOB_TRANSITIONS.next_state(self.job, event)

    def apply_to_attempt(self, event: AttemptEvent, reason: EndReason = EndReason.UNKNOWN) -> None:
        assert self.attempt is not None
        self.attempt = ATTEMPT_TRANSITIONS.next_state(self.attempt, event)
        if self.attempt is AttemptState.RUNNING and self.job is JobState.STARTING:
            self.ever_trained = True
            self.apply_to_job(JobEvent.ATTEMPT_STARTED)
        if self.attempt in ATTEMPT_TRANSITIONS.terminal:
            ending = ending_of(reason, retries=1, retries_used=0)
            self.attempt = self.drain = None
            self.apply_to_job(
                event_when_attempt_ended(
                    ending, ever_trained=self.ever_trained, stop_cause=self.stop_cause
                )
            )

    @precondition(lambda self: self.job in CLAIMABLE_JOB_STATES)
    @rule()
    def claim(self) -> None:
        self.apply_to_job(JobEvent.CLAIMED)
        self.attempt = AttemptState.PROVISIONING

    @precondition(lambda self: self.attempt is AttemptState.PROVISIONING)
    @rule(
        event=st.sampled_from(
            [
                AttemptEvent.MEMBERS_REGISTERED,
                AttemptEvent.MEMBER_MISSING,
                AttemptEvent.OFFERS_EXHAUSTED,
            ]
        )
    )
    def provision(self, event: AttemptEvent) -> None:
        self.apply_to_attempt(event, EndReason.NO_CAPACITY)

    @precondition(lambda self: self.attempt in (AttemptState.PREPARING, AttemptState.RUNNING))
    @rule(
        event=st.sampled_from(
            [
                AttemptEvent.TRAINER_STARTED,
                AttemptEvent.MEMBER_GONE,
                AttemptEvent.MEMBER_ENDED,
                AttemptEvent.DRAIN_ORDERED_INTERRUPTION,
            ]
        )
    )
    def train(self, event: AttemptEvent) -> None:
        if event is AttemptEvent.DRAIN_ORDERED_INTERRUPTION:
            self.drain = DrainCause.INTERRUPTION
        self.apply_to_attempt(event)

    @precondition(lambda self: self.attempt is AttemptState.DRAINING)
    @rule()
    def drained(self) -> None:
        assert self.drain is not None
        reason = EndReason.SPOT_INTERRUPTED
        if self.drain is DrainCause.STOP:
            assert self.stop_cause is not None
            reason = stop_end_reason(self.stop_cause)
        self.apply_to_attempt(all_drained(self.drain), reason)

    @precondition(lambda self: self.attempt is AttemptState.SETTLING)
    @rule(
        state=st.sampled_from([AttemptState.SUCCEEDED, AttemptState.FAILED, AttemptState.LOST]),
        fatal=st.booleans(),
    )
    def judged(self, state: AttemptState, fatal: bool) -> None:
        reason = EndReason.CREDENTIALS if fatal else EndReason.CONTACT_LOST
        if state is AttemptState.SUCCEEDED:
            reason = EndReason.FINISHED
        self.apply_to_attempt(verdict_event(state), reason)

    @rule(cause=st.sampled_from(StopCause))
    def order_stop(self, cause: StopCause) -> None:
        event = event_for_stop(self.job, cause)
        before = self.job
        try:
            self.apply_to_job(event)
        except IllegalTransition:
            assert self.job is before
            return
        self.stop_cause = raise_stop_cause(self.stop_cause, cause)
        if self.attempt is not None:
            self.drain = DrainCause.STOP
            # The job's stop is done when the attempt ends, here or later.
            self.apply_to_attempt(drain_ordered(DrainCause.STOP), stop_end_reason(cause))

    @precondition(lambda self: self.job is JobState.PAUSED)
    @rule()
    def resume(self) -> None:
        self.apply_to_job(JobEvent.RESUMED)
        self.stop_cause = None

    @rule(event=st.sampled_from(sorted(JOB_TRANSITIONS.facts)))
    def late_fact_about_a_finished_job(self, event: JobEvent) -> None:
        if self.job in JOB_TRANSITIONS.terminal:
            self.apply_to_job(event)

    @invariant()
    def an_attempt_lives_exactly_where_it_may(self) -> None:
        assert (self.attempt is not None) == (self.job in ATTEMPT_JOB_STATES)

    @invariant()
    def a_stopping_job_knows_why(self) -> None:
        if self.job is JobState.STOPPING:
            assert self.stop_cause is not None

    @invariant()
    def an_end_is_final(self) -> None:
        if self.final_state is not None:
            assert self.job is self.final_state
        if self.job in JOB_TRANSITIONS.terminal:
            self.final_state = self.job


class GangWalk(RuleBasedStateMachine):
    """Members' ends arrive in any order; the verdict comes when the last one is explained."""

    @initialize(size=st.integers(1, 4))
    def form(self, size: int) -> None:
        self.ends = {rank: MemberEnd(rank) for rank in range(size)}

    def verdict_now(self, deadline_passed: bool = False) -> AttemptState | None:
        found = settle(
            list(self.ends.values()), final_manifest=False, deadline_passed=deadline_passed
        )
        return None if found is None else found.state

    @rule(rank=st.integers(0, 3), outcome=st.sampled_from(MemberOutcome), peer=st.booleans())
    def reports_its_end(self, rank: int, outcome: MemberOutcome, peer: bool) -> None:
        old = self.ends.get(rank)
        if old is not None and old.outcome is None and not old.gone_with_two_witnesses:
            self.ends[rank] = MemberEnd(rank, outcome, peer_communication=peer, noticed=old.noticed)

    @rule(rank=st.integers(0, 3), noticed=st.booleans())
    def has_a_witness(self, rank: int, noticed: bool) -> None:
        old = self.ends.get(rank)
        if old is not None and old.outcome is None:
            self.ends[rank] = MemberEnd(
                rank,
                noticed=noticed or old.noticed,
                gone_with_two_witnesses=not noticed or old.gone_with_two_witnesses,
            )

    @invariant()
    def waits_exactly_while_somebody_is_unexplained(self) -> None:
        if not hasattr(self, "ends"):
            return
        unexplained = [end for end in self.ends.values() if not end.explained]
        assert (self.verdict_now() is None) == bool(unexplained)
        assert self.verdict_now(deadline_passed=True) is not None

    @invariant()
    def the_cloud_is_blamed_exactly_when_it_took_somebody(self) -> None:
        if not hasattr(self, "ends"):
            return
        state = self.verdict_now(deadline_passed=True)
        taken = any(end.noticed for end in self.ends.values())
        gone = any(end.gone for end in self.ends.values())
        assert (state is AttemptState.INTERRUPTED) == taken
        assert (state is AttemptState.LOST) == (gone and not taken)


class MachineWalk(RuleBasedStateMachine):
    """A machine whose facts arrive late, twice and out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.state = InstanceState.REQUESTED
        self.ended = False
        self.giving_back = False

    def move(self, event: InstanceEvent) -> None:
        before = self.state
        for step in events_for(self.state, event):
            self.state = INSTANCE_TRANSITIONS.next_state(self.state, step)
        if before in INSTANCE_TRANSITIONS.terminal:
            assert self.state is before

    @rule(event=st.sampled_from(sorted(INSTANCE_TRANSITIONS.facts)), twice=st.booleans())
    def fact(self, event: InstanceEvent, twice: bool) -> None:
        self.move(event)
        first = self.state
        if twice:
            self.move(event)
            assert self.state is first
        self.ended |= event is InstanceEvent.ABSENCE_CONFIRMED

    @rule(event=st.sampled_from(sorted(INSTANCE_TRANSITIONS.commands)))
    def command(self, event: InstanceEvent) -> None:
        before = self.state
        try:
            self.move(event)
        except IllegalTransition:
            assert self.state is before
            return
        if event is InstanceEvent.LAUNCH_SUBMITTED:
            assert not self.giving_back, "a released machine was launched"
        else:
            self.giving_back = True

    @invariant()
    def a_confirmed_absence_ends_it(self) -> None:
        if self.ended:
            assert self.state in INSTANCE_TRANSITIONS.terminal

    @invariant()
    def what_is_given_back_never_serves_again(self) -> None:
        if self.giving_back:
            assert self.state in (InstanceState.TERMINATING, InstanceState.TERMINATED)


TestJobWalk = JobWalk.TestCase
TestJobWalk.settings = WALKS
TestGangWalk = GangWalk.TestCase
TestGangWalk.settings = WALKS
TestMachineWalk = MachineWalk.TestCase
TestMachineWalk.settings = WALKS
