"""Budgets of tokens: what is refused, and a deadline on a device whose decode steps become slower."""

import pytest

from configs.errors import UsageError
from oxygen.serving.engine import Engine
from oxygen.serving.language import LanguageTask
from oxygen.serving.scheduler import Deadline, FixedTokens, Mode, Scheduler
from oxygen.serving.text_decoder import LocalTextDecoder
from tests.oxygen.serving.fake_runner import DeviceArray, FakeRunner, RunsWhenAsked

ACTION_MS, DEADLINE_MS = 30.0, 100.0


class TimedArray(DeviceArray):
    """What a device writes until a moment; the host's clock runs while it waits for that."""

    def __init__(self, value, device, until_ms):
        super().__init__(value)
        self._device, self._until_ms = device, until_ms

    def block_until_ready(self):
        self._device.now_ms = max(self._device.now_ms, self._until_ms)
        return self


class TimedRunner(FakeRunner):
    """Answers with actions after `ACTION_MS`; then every decode step takes the device `step_ms`."""

    def __init__(self, step_ms):
        self.now_ms = self._busy_until_ms = 0.0
        self.step_ms = step_ms
        super().__init__()

    def clock(self):
        return 1e-3 * self.now_ms

    def denoise(self, prefix, seeds, queries):
        self.now_ms = max(self.now_ms, self._busy_until_ms) + ACTION_MS
        return super().denoise(prefix, seeds, queries)

    def decode(self, slots, pool, texts, *, batch):
        self._busy_until_ms = max(self.now_ms, self._busy_until_ms) + self.step_ms
        return super().decode(slots, pool, texts, batch=batch)

    def _written(self, count):
        tokens = super()._written(count)._value
        return TimedArray(tokens, self, self._busy_until_ms)


def frames(device):
    """Decode steps and time of queries without end, a text of 30 tokens in each; the next follows at once."""
    decoder = LocalTextDecoder(device, clock=device.clock, waiting=RunsWhenAsked())
    task = LanguageTask(name="text", prompt="Say", suffix=(5, 6), max_tokens=30)
    scheduler = Scheduler(mode=Mode.UNIFIED, tasks=[task], slots=6, rows=6)
    engine = Engine(device, scheduler, decoder, Deadline(DEADLINE_MS), clock=device.clock)
    query = 0
    while True:
        came = device.now_ms
        step = engine.act(device.blank(24), {0: query}, arrived_s=1e-3 * came)
        engine.complete(delivered_s=step.actions_ready_s)
        yield step.decode_steps, device.now_ms - came
        query += 1


def test_a_device_that_becomes_slower_is_given_less_to_do_and_a_quicker_one_more_again():
    device = TimedRunner(step_ms=3.9)
    running = frames(device)
    first, *_, quick = [next(running) for _ in range(30)]
    assert first[0] == 1, "before anything is measured"
    device.step_ms = 11.0
    slow = [next(running) for _ in range(30)][-1]
    device.step_ms = 3.9
    again = [next(running) for _ in range(60)][-1]
    room_ms = 0.9 * DEADLINE_MS - ACTION_MS
    steps, took_ms = zip(quick, slow, again, strict=True)
    assert steps == (room_ms // 3.9, room_ms // 11, room_ms // 3.9)
    assert max(took_ms) <= DEADLINE_MS
    device.step_ms = 2 * DEADLINE_MS
    assert [next(running) for _ in range(30)][-1][0] == 1, "every text ends"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FixedTokens(0), "tokens per frame is 0"),
        (lambda: Deadline(0.0), "the deadline is 0.0 ms"),
    ],
)
def test_budgets_that_make_no_sense_are_refused(make, message):
    with pytest.raises(UsageError, match=message):
        make()
