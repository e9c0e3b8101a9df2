"""StreamCloud's Elastic Manager (figure 12): sizes by mean utilisation, balance by its deviation.

For each subquery: if the mean is out of [lower, upper], another number of instances; if the
deviation is above the imbalance that is allowed, buckets move. Both together are one change.

Laws: a breach counts once it was there in `PATIENCE` views in a row; a subquery never shrinks to a
size whose expected utilisation is above the target, so that growing again does not follow at once;
growing stops at the last size whose expected utilisation is not below ``lower``, but is by one
instance at least, since an instance that is too small cannot show how much more there is to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, get_args

from penstock.base.errors import QueryError
from penstock.control.bounds import Bounds, count_needed_for_memory, most_instances, room_for
from penstock.control.decision import Decision, Memory, Parameters
from penstock.control.placing import (
    Placed,
    balance,
    deviation,
    find_hottest,
    known_loads,
    mean,
    resize,
)
from penstock.control.view import SubqueryView, View
from penstock.control.words import count
from penstock.plan.changes import Cause, Change, ChangeKind

PATIENCE = 2
"""In how many views in a row a threshold must be breached before something is done."""
_NEAR = 1e-9
Provisioning = Literal["load-aware", "individual"]
PROVISIONING: tuple[Provisioning, ...] = get_args(Provisioning)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCloudParameters(Parameters):
    """The thresholds of the Elastic Manager.

    Attributes:
        target: The utilisation that a change aims at (TUT).
        lower: Below this mean utilisation instances are given back (LUT).
        upper: Above it instances are added (UUT).
        imbalance: Above this standard deviation of the instances' utilisation, buckets move (UIT).
        improvement: A balance must improve the deviation by this share of it; once the deviation is
            allowed, so must every further move (MIT).
        provisioning: ``load-aware`` goes to the target in one step, ``individual`` by one instance.
    """

    target: float = 0.6
    lower: float = 0.5
    upper: float = 0.9
    imbalance: float = 0.1
    improvement: float = 0.01
    provisioning: Provisioning = "load-aware"

    def __post_init__(self) -> None:
        checks = [
            (
                not 0 < self.lower < self.target < self.upper,
                "elastic: 0 < lower < target < upper must hold; "
                f"lower={self.lower!r}, target={self.target!r}, upper={self.upper!r}",
            ),
            (self.imbalance <= 0, f"elastic: imbalance must be positive; got {self.imbalance!r}"),
            (
                not 0 <= self.improvement < 1,
                f"elastic: improvement must be in [0, 1); got {self.improvement!r}",
            ),
            (
                self.provisioning not in PROVISIONING,
                f"elastic: unknown provisioning {self.provisioning!r}; "
                f"known: {', '.join(PROVISIONING)}",
            ),
        ]
        problems = [text for wrong, text in checks if wrong]
        if problems:
            raise QueryError(problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """A size that is wanted, and why; ``urgent`` does not wait for a second view."""

    instances: int
    breach: str = ""
    why: str = ""
    urgent: bool = False


class StreamCloud:
    """The Elastic Manager with a user's rules."""

    name = "streamcloud"
    parameters = StreamCloudParameters

    def __init__(self, bounds: Bounds, parameters: StreamCloudParameters) -> None:
        """Decide by some bounds and thresholds."""
        self.bounds, self.rules = bounds, parameters

    def decide(self, view: View, memory: Memory) -> Decision:
        """Return what to change after an epoch, and why."""
        plan: list[Change] = []
        reasons: list[str] = []
        after: dict[str, Any] = {}
        pressed = self._find_pressed(view)
        for subquery in view.subqueries:
            past = memory.get(subquery.name, {})
            size = self._size(view, subquery, pressed=subquery.id == pressed)
            known = not view.recovering  # loads of a recovery are no sign of what will be
            uneven = known and self._is_uneven(subquery)
            now = _count_breaches(past, view.epoch, size.breach if known else "", uneven)
            after[subquery.name] = now
            change, why = self._subquery(subquery, size, now)
            plan += [change] if change else []
            reasons += why
        if not reasons:
            seen = view.subqueries and not view.recovering
            reasons = ["no threshold is breached" if seen else "the loads are not known yet"]
        return Decision(plan=tuple(plan), memory=after, reasons=tuple(reasons))

    def _is_uneven(self, subquery: SubqueryView) -> bool:
        """Return whether buckets should move, by loads that are no accident of an epoch or two."""
        steady = subquery.movable and subquery.epochs >= self.bounds.smoothing
        return steady and deviation(subquery.utilisations) > self.rules.imbalance

    def _find_pressed(self, view: View) -> int | None:
        """Return the subquery that must grow because all stages together take too long."""
        if view.busy_share <= self.rules.upper:
            return None
        able = [s for s in view.subqueries if not s.fixed and s.instances]
        able = [s for s in able if len(s.instances) < room_for(view, s, self.bounds)]
        most = max(able, key=lambda s: (mean(s.utilisations), -s.id), default=None)
        return None if most is None else most.id

    def _size(self, view: View, subquery: SubqueryView, *, pressed: bool) -> _Size:
        """Return the size that a subquery should have: ComputeNewConfiguration."""
        bounds, rules = self.bounds, self.rules
        now, used = len(subquery.instances), mean(subquery.utilisations)
        if subquery.fixed:
            return _Size(instances=now)
        most = most_instances(view, subquery, bounds)
        room = room_for(view, subquery, bounds)
        memory = min(count_needed_for_memory(subquery, bounds), most)
        least = max(min(bounds.min, most), memory)
        if now < memory:
            why = f"its state needs {memory} instances of {bounds.memory_bytes} bytes"
            return _Size(instances=memory, breach="memory", why=why, urgent=True)
        if now < least or now > bounds.max:
            why = f"{bounds.min} to {bounds.max} instances are asked for"
            fits = max(least, min(now, bounds.max))
            return _Size(instances=fits, breach="bounds", why=why, urgent=True)
        if used > rules.upper:
            why = f"mean utilisation {used:.2f} is above {rules.upper:.2f}"
            grown = max(now, min(choose_larger(now, used, rules), room))
            return _Size(instances=grown, breach="above", why=why)
        if pressed:
            why = (
                f"the stages of an epoch together are busy for {view.busy_share:.2f} of the time, "
                f"above {rules.upper:.2f}, and this one is the busiest"
            )
            factor = self._relief(view, subquery)
            grown = now + 1 if rules.provisioning == "individual" else ceil(now * factor - _NEAR)
            grown = max(now + 1, grown)
            return _Size(instances=max(now, min(grown, room)), breach="pressure", why=why)
        if used < rules.lower:
            why = f"mean utilisation {used:.2f} is below {rules.lower:.2f}"
            fewer = max(min(choose_smaller(now, used, rules), now), least)
            while fewer < now and self._is_too_tight(view, subquery, fewer):
                fewer += 1
            return _Size(instances=fewer, breach="below" if fewer < now else "", why=why)
        return _Size(instances=now)

    def _relief(self, view: View, subquery: SubqueryView) -> float:
        """Return by which factor a subquery must grow for the stages to take the target's share."""
        used = mean(subquery.utilisations) * self.bounds.instance_cores
        left = used - (view.busy_share - self.rules.target)
        return min(2.0, used / left) if left > 0 else 2.0

    def _is_too_tight(self, view: View, subquery: SubqueryView, instances: int) -> bool:
        """Return whether a smaller size would soon have to grow again."""
        slowest, hot = max(subquery.utilisations), find_hottest(subquery)
        used = sum(subquery.utilisations) / instances
        worst = max(used, hot[1] if hot else 0.0)
        more = (used - mean(subquery.utilisations)) * self.bounds.instance_cores
        calm = (self.rules.target + self.rules.upper) / 2
        tight = view.busy_share + more > max(calm, view.busy_share)
        return worst > max(self.rules.upper, slowest) or tight

    def _subquery(
        self, subquery: SubqueryView, size: _Size, counted: Mapping[str, Any]
    ) -> tuple[Change | None, list[str]]:
        """Return the change of one subquery, if any, and what there is to say."""
        ripe = size.urgent or counted["views"] >= PATIENCE
        reasons: list[str] = []
        if size.breach and ripe:
            change, text = self._rescale(subquery, size)
            reasons += [f"{subquery.name}: {text}"]
            if change is not None:
                return change, reasons
        if counted["uneven"] >= PATIENCE:
            change, text = self._rebalance(subquery)
            return change, [*reasons, f"{subquery.name}: {text}"]
        return None, reasons

    def _rescale(self, subquery: SubqueryView, size: _Size) -> tuple[Change | None, str]:
        now, rules = len(subquery.instances), self.rules
        if size.instances == now:
            return None, f"{size.why}, but it has {count(now, 'instance')}, the most it can have"
        useless = _explain_useless(subquery, size, rules)
        if useless:
            return None, f"{size.why}, but {useless}"
        placed = resize(subquery, size.instances)
        if placed is None:
            return None, f"{size.why}, but an instance that would go still has buckets on their way"
        loads = known_loads(subquery)
        if loads is not None and placed.deviation > rules.imbalance:
            placed = balance(
                placed,
                loads,
                frozen=subquery.moving,
                enough=rules.imbalance,
                improvement=rules.improvement,
            )
        why = f"{size.why}; {count(now, 'instance')} -> {size.instances}{_aim(size, placed, rules)}"
        return self._change(subquery, placed, "rescale", why), why

    def _rebalance(self, subquery: SubqueryView) -> tuple[Change | None, str]:
        rules = self.rules
        uneven = deviation(subquery.utilisations)
        why = f"deviation {uneven:.2f} of the utilisation is above {rules.imbalance:.2f}"
        loads = known_loads(subquery)
        if loads is None:
            return None, f"{why}, but its buckets cannot be moved one by one"
        now = Placed(owners=subquery.owners, utilisations=subquery.utilisations)
        placed = balance(
            now,
            loads,
            frozen=subquery.moving,
            enough=rules.imbalance,
            improvement=rules.improvement,
        )
        left = "" if placed.deviation <= rules.imbalance else f"; {explain_stuck(subquery)}"
        if placed.deviation > uneven * (1 - rules.improvement) or placed.owners == subquery.owners:
            return None, f"{why}, but no move of a bucket improves it enough{left}"
        moved = sum(1 for _ in subquery.owners.find_moved(placed.owners))
        why = f"{why}; {moved} buckets move and leave {placed.deviation:.2f}{left}"
        return self._change(subquery, placed, "rebalance", why), why

    def _change(self, subquery: SubqueryView, placed: Placed, kind: ChangeKind, why: str) -> Change:
        return Change(
            subquery=subquery.id,
            owners=placed.owners,
            kind=kind,
            cause=Cause(self.name),
            reason=why,
            protocol=self.bounds.protocol,
        )


def choose_larger(now: int, used: float, rules: StreamCloudParameters) -> int:
    """Return the size to grow to when the mean utilisation is above the upper threshold.

    >>> single = StreamCloudParameters(provisioning="individual")
    >>> choose_larger(4, 0.93, StreamCloudParameters()), choose_larger(4, 0.93, single)
    (7, 5)
    """
    if rules.provisioning == "individual":
        return now + 1
    size = ceil(now * used / rules.target - _NEAR)
    while size > now + 1 and now * used / size < rules.lower:
        size -= 1
    return max(size, now + 1)


def choose_smaller(now: int, used: float, rules: StreamCloudParameters) -> int:
    """Return the size to shrink to when the mean utilisation is below the lower threshold.

    >>> aware, single = (StreamCloudParameters(provisioning=way) for way in PROVISIONING)
    >>> choose_smaller(10, 0.3, aware), choose_smaller(10, 0.3, single)
    (5, 9)
    >>> choose_smaller(2, 0.45, aware), choose_smaller(2, 0.45, single)
    (2, 2)
    """
    least = max(1, ceil(now * used / rules.target - _NEAR))
    return max(least, now - 1) if rules.provisioning == "individual" else least


def _explain_useless(subquery: SubqueryView, size: _Size, rules: StreamCloudParameters) -> str:
    """Return why more instances would not help, if they would not: one bucket is all the load."""
    hot = find_hottest(subquery)
    if hot is None or size.breach not in ("above", "pressure"):
        return ""
    fair = 1 - len(subquery.instances) / size.instances
    if hot[1] < max(subquery.utilisations) * (1 - min(rules.improvement, fair / 2)):
        return ""
    return f"{size.instances} instances would be no better: {explain_stuck(subquery)}"


def explain_stuck(subquery: SubqueryView) -> str:
    """Return why the load of a subquery cannot be spread better."""
    found = find_hottest(subquery)
    if found is None:
        return "the load of its buckets is not known"
    bucket, load = found
    if load > mean(subquery.utilisations):
        return (
            f"bucket {bucket} alone takes {load:.2f} of an instance, and one bucket cannot be split"
        )
    return f"the largest bucket, {bucket}, takes {load:.2f} of an instance"


def _aim(size: _Size, placed: Placed, rules: StreamCloudParameters) -> str:
    if size.breach == "above" and rules.provisioning == "load-aware":
        return f" for the target of {rules.target:.2f}"
    if size.breach in ("above", "below", "pressure"):
        return f", which leaves {mean(placed.utilisations):.2f}"
    return ""


def _count_breaches(
    past: Mapping[str, Any], epoch: int, breach: str, uneven: bool
) -> dict[str, int | str]:
    """Return for how many views in a row thresholds have been breached, this one included."""
    following = past.get("epoch") == epoch - 1
    same = following and past.get("breach") == breach
    views = (past["views"] if same else 0) + 1 if breach else 0
    before = past["uneven"] if following else 0
    return {
        "epoch": epoch,
        "breach": breach,
        "views": views,
        "uneven": before + 1 if uneven else 0,
    }
