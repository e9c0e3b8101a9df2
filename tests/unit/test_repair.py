"""Repair: a damaged checkpoint becomes sound, and the query goes on as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import CheckpointError
from penstock.files.place import place_of
from penstock.plan.buckets import BucketSet
from penstock.sinks.epochs import epoch_name
from penstock.state.care.repair import plan_repair
from penstock.state.care.repair_steps import RepairPlan, carry_out, seems_to_run
from penstock.state.care.verify import verify
from penstock.state.manifests import Manifest, ManifestLog
from penstock.testing.faults.specimens import Outcome, Specimen, naming


class Patient:
    """A specimen that is damaged, repaired and run to its end."""

    def __init__(self, specimen: Specimen) -> None:
        self.specimen = specimen
        specimen.prepare()
        specimen.fresh()
        self.clean: Outcome = specimen.go_on()

    @property
    def home(self) -> Path:
        return self.specimen.home

    @property
    def root(self) -> Path:
        return self.home / "penstock"

    @property
    def newest(self) -> Manifest:
        found = ManifestLog(place_of(self.home) / "penstock").newest()
        assert found is not None
        return found

    def manifest(self, epoch: int) -> Manifest:
        found = ManifestLog(place_of(self.home) / "penstock").read(epoch)
        assert found is not None
        return found

    def fresh(self) -> Patient:
        self.specimen.fresh()
        return self

    def repair(self) -> RepairPlan:
        assert not verify(self.home).sound
        plan = plan_repair(self.home)
        before = {path for path in self.home.rglob("*") if path.is_file()}
        assert plan.needed
        assert not plan.impossible
        with naming("r"):
            folder = Path(str(carry_out(plan)))
        kept = [path for path in folder.rglob("*") if path.is_file()]
        after = {path for path in self.home.rglob("*") if path.is_file()}
        assert len(before - after) <= len(kept), "something was deleted"
        found = verify(self.home)
        assert found.sound, found.findings
        return plan

    def goes_on(self) -> bool:
        outcome = self.specimen.go_on()
        assert verify(self.home).sound
        return outcome == self.clean


@pytest.fixture(scope="module")
def patients(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Patient]:
    folder = tmp_path_factory.mktemp("patients")
    return {
        state: Patient(Specimen(folder=folder / state, state=state))
        for state in ("stopped", "unpublished", "uncommitted")
    }


def damage(path: Path, data: bytes = b"damaged") -> Path:
    path.unlink()
    path.write_bytes(data)
    return path


def test_a_sound_checkpoint_needs_no_repair(patients: dict[str, Patient]) -> None:
    plan = plan_repair(patients["stopped"].fresh().home)
    assert not plan.needed
    assert plan.back_to == plan.newest == 10


def merged_segment(patient: Patient) -> Path:
    for operator, refs in patient.newest.segments.items():
        for ref in refs:
            if ref.merged:
                return patient.root / "state" / operator / ref.name
    raise AssertionError("no segment of the newest epoch was merged from others")


def test_a_merged_segment_is_replaced_by_its_inputs(patients: dict[str, Patient]) -> None:
    patient = patients["stopped"].fresh()
    path = damage(merged_segment(patient))
    plan = patient.repair()
    assert plan.back_to == plan.newest
    assert any("nothing is run again" in note for note in plan.notes)
    newest = patient.newest
    assert path.name in newest.repaired
    assert path.name not in {name for _, name in newest.segment_names()}
    for refs in newest.segments.values():
        for ref in refs:
            assert ref.live == BucketSet.of(ref.buckets).ranges
    assert not path.exists()
    assert patient.goes_on()


def plain_segment(patient: Patient, epoch: int) -> Path:
    for operator, refs in patient.newest.segments.items():
        for ref in refs:
            if not ref.merged and ref.name.startswith(f"{epoch:012d}"):
                return patient.root / "state" / operator / ref.name
    raise AssertionError(f"epoch {epoch} wrote no segment that is live")


@pytest.mark.parametrize("state", ["stopped", "unpublished"])
def test_another_segment_takes_the_query_back(patients: dict[str, Patient], state: str) -> None:
    patient = patients[state].fresh()
    damage(plain_segment(patient, 10))
    plan = patient.repair()
    assert plan.back_to == 9
    assert any("foreach_batch" in note for note in plan.notes)
    assert any("must still be there" in note for note in plan.notes)
    assert patient.goes_on()


def test_the_query_can_go_back_by_several_epochs(patients: dict[str, Patient]) -> None:
    patient = patients["stopped"].fresh()
    epoch = min(
        int(ref.name[:12])
        for refs in patient.newest.segments.values()
        for ref in refs
        if not ref.merged
    )
    damage(plain_segment(patient, epoch))
    plan = patient.repair()
    assert plan.back_to == epoch - 1 < 9
    raw = patient.specimen.live / "raw"
    assert not (raw / epoch_name(epoch + 1)).exists()
    assert (raw / epoch_name(epoch)).exists()
    lists = patient.home / "spark" / "sources" / "0"
    assert max(int(p.name.split(".")[0]) for p in lists.iterdir() if p.name[0] != ".") == epoch
    assert patient.goes_on()


@pytest.mark.parametrize("state", ["stopped", "unpublished", "uncommitted"])
@pytest.mark.parametrize("gone", [False, True])
def test_a_damaged_newest_manifest(patients: dict[str, Patient], state: str, gone: bool) -> None:
    patient = patients[state].fresh()
    path = patient.root / "manifests" / f"{patient.newest.epoch:012d}.json"
    if not gone:
        damage(path)
    elif state == "unpublished":
        path.unlink()
        assert verify(patient.home).sound, "an epoch that nobody saw may as well not have been"
        assert patient.specimen.go_on() == patient.clean
        return
    else:
        path.unlink()
        with pytest.raises(CheckpointError, match=f"missing.*penstock state repair {patient.home}"):
            patient.specimen.go_on()
    epoch = int(path.name[:12])
    assert patient.repair().back_to == epoch - 1
    assert patient.goes_on()


def test_a_manifest_of_the_past_is_given_up(patients: dict[str, Patient]) -> None:
    patient = patients["stopped"].fresh()
    damage(patient.root / "manifests" / "000000000007.json")
    plan = patient.repair()
    assert plan.back_to == 10
    assert any("epoch 7 can no longer be read" in note for note in plan.notes)
    assert patient.goes_on()


def test_a_segment_of_the_past_takes_its_epochs_along(patients: dict[str, Patient]) -> None:
    patient = patients["stopped"].fresh()
    live = {name for _, name in patient.newest.segment_names()}
    old = next(p for p in (patient.root / "state").rglob("*.arrow") if p.name not in live)
    damage(old)
    plan = patient.repair()
    assert plan.back_to == 10
    assert any("can no longer be read" in note for note in plan.notes)
    assert patient.goes_on()


@pytest.mark.parametrize("pin", ["000000000000.json", "000000000001.json"])
def test_pins_are_set_aside(patients: dict[str, Patient], pin: str) -> None:
    patient = patients["stopped"].fresh()
    damage(patient.root / "pinned" / pin)
    patient.repair()
    assert patient.goes_on()


@pytest.mark.parametrize("side", ["out", "raw", "checkpoint/penstock/dead/0"])
def test_an_output_of_the_newest_epoch_is_made_again(
    patients: dict[str, Patient], side: str
) -> None:
    patient = patients["stopped"].fresh()
    epochs = sorted((patient.specimen.live / side).iterdir(), key=lambda p: int(p.name[6:]))
    assert epochs[-1].name == epoch_name(10)
    damage(next(epochs[-1].iterdir()))
    assert patient.repair().back_to == 9
    assert patient.goes_on()


def test_an_older_output_is_lost_and_counted(patients: dict[str, Patient]) -> None:
    patient = patients["stopped"].fresh()
    path = next((patient.specimen.live / "raw" / epoch_name(8)).iterdir())
    rows = next(s.rows for s in patient.manifest(8).staged if s.sha256[:16] in path.name)
    damage(path)
    plan = patient.repair()
    assert plan.back_to == 10
    assert any(f"{rows} rows lost" in note for note in plan.notes)
    outcome = patient.specimen.go_on()
    assert len(outcome["raw"]) == len(patient.clean["raw"]) - rows
    assert outcome["out"] == patient.clean["out"]


def test_a_file_that_waits_is_made_again(patients: dict[str, Patient]) -> None:
    patient = patients["unpublished"].fresh()
    damage(Path(patient.newest.staged[0].path))
    assert patient.repair().back_to == 9
    assert patient.goes_on()


def test_rows_are_written_again(patients: dict[str, Patient]) -> None:
    patient = patients["stopped"].fresh()
    (path,) = (patient.home / "rows" / "1").iterdir()
    damage(path)
    patient.repair()
    assert patient.goes_on()
    assert path.exists()


@pytest.mark.parametrize("name", ["offsets/10", "commits/9", "sources/0/10", "metadata"])
def test_torn_files_of_spark_are_set_aside(patients: dict[str, Patient], name: str) -> None:
    """The epoch after the newest was begun: Spark has logged its input, and we no manifest."""
    patient = patients["uncommitted"].fresh()
    damage(patient.home / "spark" / name, b"v1\n{tor")
    plan = patient.repair()
    assert plan.back_to == 9
    assert patient.goes_on()


def test_offsets_of_a_committed_epoch_take_the_query_back(patients: dict[str, Patient]) -> None:
    patient = patients["stopped"].fresh()
    damage(patient.home / "spark" / "offsets" / "10", b"v1\n{}\n{}")
    assert patient.repair().back_to == 9
    assert patient.goes_on()


def test_a_list_that_spark_has_merged_away_makes_it_impossible(
    patients: dict[str, Patient],
) -> None:
    patient = patients["stopped"].fresh()
    for number in range(9):
        (patient.home / "spark" / "sources" / "0" / str(number)).unlink(missing_ok=True)
    (patient.home / "spark" / "sources" / "0" / "4.compact").unlink()
    assert verify(patient.home).sound
    for epoch in (8, 9, 10):
        for operator, name in patient.manifest(epoch).segment_names():
            damage(patient.root / "state" / operator / name)
    before = sorted(patient.home.rglob("*"))
    plan = plan_repair(patient.home)
    assert plan.impossible
    assert not plan.steps
    with pytest.raises(CheckpointError, match="restore the checkpoint"):
        carry_out(plan)
    assert sorted(patient.home.rglob("*")) == before


def test_a_checkpoint_that_changed_since_is_left_alone(patients: dict[str, Patient]) -> None:
    patient = patients["stopped"].fresh()
    damage(patient.root / "pinned" / "000000000001.json")
    plan = plan_repair(patient.home)
    (patient.root / "manifests" / "000000000010.json").unlink()
    with pytest.raises(CheckpointError, match="has changed"):
        carry_out(plan)


class Clock:
    """A clock that only waiting moves; what waits may have something happen."""

    def __init__(self, now: float, log: ManifestLog | None = None) -> None:
        self.now, self.log = now, log

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        if self.log is not None and self.now > 101:
            newest = self.log.newest()
            assert newest is not None
            if newest.epoch == 0:
                self.log.commit(Manifest(epoch=1, previous=newest.digest))


@pytest.mark.parametrize(
    ("age", "goes_on", "runs"), [(1, True, True), (1, False, False), (60, True, False)]
)
def test_a_query_that_commits_epochs_is_noticed(
    tmp_path: Path, age: float, goes_on: bool, runs: bool
) -> None:
    log = ManifestLog(place_of(tmp_path, fsync=False) / "penstock")
    log.commit(Manifest(epoch=0, committed_at=100 - age))
    clock = Clock(100, log if goes_on else None)
    assert seems_to_run(str(tmp_path), clock=clock, wait=clock.wait) is runs
