"""The world breaks at every step of a script of appends, rotations and recoveries; what was promised is there."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from dreamkeep.errors import NotDurable
from dreamkeep.journal import parts
from dreamkeep.journal.reader import Reading
from tests.helpers.append_script import FOLDER, AppendScript, event, ids_in, writer
from tests.helpers.faults import LOSSES, FragileHost, PowerCut


def cuts(
    script: Callable[[FragileHost], AppendScript], losses: tuple[str, ...] = LOSSES
) -> Iterator[tuple[AppendScript, FragileHost, str]]:
    """Every (n, loss): the script with the power cut before its nth operation, and the disk that is left."""
    for n in count(1):
        for loss in losses:
            host = FragileHost(at=n, seed=n)
            done = AppendScript()
            try:
                done.run(host, 14)
            except PowerCut:
                yield done, host.reboot(loss, seed=n), f"cut {n}, {loss}"
            else:
                return


def test_power_cut_at_every_step_keeps_what_was_promised() -> None:
    """W12 T1 T5: every append that returned is there, nothing is invented, the next append works."""
    tried = 0
    for script, disk, _ in cuts(AppendScript):  # type: ignore[arg-type]
        script.check(disk)
        script.run(disk, 3)
        assert script.acked[-3:] == script.tried[-3:]
        script.check_settled(disk)
        tried += 1
    assert tried > 300


@pytest.mark.slow
def test_a_second_power_cut_during_recovery_is_recovered_from() -> None:
    """T5: for every cut, a cut at every operation of the recovery that follows."""
    for script, disk, _ in cuts(AppendScript, ("zeroed", "garbage", "mixed")):  # type: ignore[arg-type]
        acked, tried = list(script.acked), list(script.tried)
        for m in count(1):
            again = disk.reboot("kept")
            again.plan(m, "cut")
            second = AppendScript()
            second.acked, second.tried = list(acked), list(tried)
            try:
                second.run(again, 2)
            except PowerCut:
                last = again.reboot(LOSSES[m % len(LOSSES)], seed=m)
                second.check(last)
                second.run(last, 2)
                second.check_settled(last)
            else:
                break


@pytest.mark.parametrize("how", ["fail", "tear", "bad_sync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_failing_operation_raises_and_loses_nothing_acknowledged(how: str, error: int) -> None:
    """W8 T10: the nth operation fails once; the call raises or succeeds honestly; the same handle works afterwards."""
    raised = 0
    for n in count(1):
        host = FragileHost()
        script = AppendScript()
        script.run(host, 3)
        host.plan(n, how, error)
        before = len(script.acked)
        script.run(host, 12, go_on=True)
        if host.calls < n:
            break
        raised += len(script.acked) - before < 12
        assert len(script.acked) - before >= 11, "one failure costs at most the append it hits: the same handle works on"
        script.check(host)
        for loss in LOSSES:
            disk = host.reboot(loss, seed=n)
            script.check(disk)
            again = AppendScript()
            again.tried, again.acked = list(script.tried), list(script.acked)
            again.run(disk, 1)
            again.check_settled(disk)
    assert n > 20
    assert raised or how == "bad_sync"


@pytest.mark.parametrize("how", ["fail", "bad_sync"])
def test_what_is_promised_after_a_failure_in_a_new_keep_survives_a_power_cut(how: str) -> None:
    """The failed operation may be the sync of any folder above the journal: the next append must make its name durable."""
    for n in count(1):
        host, script = FragileHost(), AppendScript()
        host.plan(n, how)
        script.run(host, 4, go_on=True)
        if host.calls < n:
            break
        for loss in LOSSES:
            script.check(host.reboot(loss, seed=n))
    assert n > 10


def test_a_power_cut_while_a_failed_sync_is_mended_forgets_no_source() -> None:
    """W14 J2: what was not acknowledged may be lost, but then its cursor is, too: the source that sends it again is heard."""
    mended = 0
    for later in range(1, 9):
        for n in range(1, 40):
            host = FragileHost()
            script = AppendScript()
            script.run(host, 3)
            host.plan(n, "bad_sync", cut_after=later)
            try:
                script.run(host, 6)
            except (PowerCut, NotDurable):
                pass
            for loss in LOSSES:
                disk = host.reboot(loss, seed=n * later)
                script.check(disk)
                last = script.tried[-1]
                before = ids_in(disk).count(last)
                writer(disk).append([event(disk, int(last[1:]))])
                assert ids_in(disk).count(last) == 1, (n, later, loss)
                mended += before == 0
    assert mended > 20


@pytest.mark.parametrize("appended", [0, 1])
def test_a_full_part_that_lost_its_last_line_feed_is_no_unfinished_end(appended: int) -> None:
    """Whether the next part is begun before or after that."""
    host = FragileHost()
    for n in range(1, 2 + appended):
        writer(host, 100).append([event(host, n)])
    del host._need(f"{FOLDER}/{parts.name(1)}").data[-1:]
    for n in range(2 + appended, 5):
        writer(host, 100).append([event(host, n)])
    reading = Reading(host, FOLDER)
    assert [frame["id"] for frame in reading if frame["id"].startswith("e")] == ["e1", "e2", "e3", "e4"]
    assert reading.tail is None and not reading.defects
    assert parts.numbers(host, FOLDER)[-1] > 1


@pytest.mark.parametrize("size", [1500, 300], ids=["in its part", "in the next"])
def test_nothing_is_appended_behind_a_tail_that_could_not_be_set_aside(size: int) -> None:
    """The disk is full when a journal is opened, and not any more when the same process appends again."""
    for at in count(1):
        host = FragileHost()
        writer(host).append([event(host, 1)])
        host._need(f"{FOLDER}/{parts.name(1)}").data += b'{"id":"torn'
        w = writer(host, size)
        host.plan(at, "fail", errno.ENOSPC)
        acked = ["e1"]
        for n in (2, 3, 4):
            try:
                w.append([event(host, n)])
                acked.append(f"e{n}")
            except NotDurable:
                pass
        reading = Reading(host, FOLDER)
        assert [frame["id"] for frame in reading if frame["id"] in ("e1", "e2", "e3", "e4")] == acked, at
        assert (reading.defects, reading.tail) == ([], None), at
        if host.calls < at:
            break


def test_what_we_wrote_ourselves_and_cut_back_is_no_tail() -> None:
    """J2: after a short write the same handle goes on, and nothing has to be set aside."""
    for n in range(1, 5):  # an append is a write and a sync
        host = FragileHost()
        w = writer(host)
        w.append([event(host, 1)])
        host.plan(n, "tear", errno.ENOSPC)
        for k in (2, 3):
            try:
                w.append([event(host, k)])
            except NotDurable as problem:
                assert problem.what and problem.where and problem.next
        assert host.stat("/keep/aside") is None
        w.append([event(host, 4)])
        assert ids_in(host)[-1] == "e4"
