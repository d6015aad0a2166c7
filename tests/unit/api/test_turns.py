"""Turns: who works, who waits, and who is sent away."""

import asyncio

import pytest
from starlette.exceptions import HTTPException

from app.api.serving.turns import Turns


def test_turns_are_taken_in_order_and_a_full_queue_refuses():
    async def run() -> list[int]:
        turns, done = Turns(1, 2, "specs", seconds_max=60), list[int]()

        async def work(number: int) -> None:
            async with turns.turn():
                done.append(number)

        await turns.wait()
        waiting = [asyncio.create_task(work(number)) for number in (1, 2)]
        await asyncio.sleep(0)
        assert turns.waiting == 2
        with pytest.raises(HTTPException) as refused:
            await turns.wait()
        assert refused.value.status_code == 503
        assert refused.value.headers == {"Retry-After": "2"}
        assert "Too many specs" in refused.value.detail
        turns.give_back()
        await asyncio.gather(*waiting)
        assert turns.waiting == 0
        return done

    assert asyncio.run(run()) == [1, 2]


def test_a_turn_that_does_not_come_is_given_up():
    async def run() -> None:
        turns = Turns(1, 5, "specs", seconds_max=0.01)
        await turns.wait()
        with pytest.raises(HTTPException, match=r"0\.01s"):
            await turns.wait()
        turns.give_back()
        await turns.wait()
        assert turns.waiting == 0

    asyncio.run(run())


def test_work_that_fails_gives_its_turn_back():
    async def run() -> None:
        turns = Turns(1, 0, "uploads", seconds_max=1)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                async with turns.turn():
                    raise ZeroDivisionError

    asyncio.run(run())
