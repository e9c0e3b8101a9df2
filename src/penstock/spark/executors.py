"""The executors of a Spark application, as its scheduler knows them.

PySpark has no interface for them; these are the calls that Spark's own dynamic allocation makes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark import SparkContext

UNLIMITED = 1 << 20
"""More executors than any cluster has: take whatever there is."""
_DRIVER = "driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class Executor:
    """An executor: its name, its host, and how many tasks it can run at the same time."""

    id: str
    host: str
    slots: int


class Executors(Protocol):
    """What a resource manager needs of the executors."""

    def mark(self) -> tuple[str, int]:
        """Return the ids, and the slots of those that take tasks; it is cheap."""
        ...

    def registered(self) -> dict[str, Executor]:
        """Return the executors that are connected, whether or not they take tasks."""
        ...

    def decommissioning(self, executor: str) -> bool:
        """Return whether an executor has been told to end."""
        ...

    def request(self, total: int) -> bool:
        """Ask the cluster manager for so many executors in all."""
        ...

    def release(self, executor: str) -> bool:
        """Give an executor back once its tasks have ended."""
        ...


class SparkExecutors:
    """The executors of a Spark context."""

    def __init__(self, context: SparkContext) -> None:
        """Look at the executors of a context."""
        self._jvm: Any = context._jvm
        self._spark: Any = context._jsc.sc()
        self._profile = self._spark.resourceProfileManager().defaultResourceProfile()
        settings = context.getConf()
        self._decommissions = settings.get("spark.decommission.enabled", "false") == "true"

    def mark(self) -> tuple[str, int]:
        """Return the ids, and the slots of those that take tasks."""
        ids = self._spark.getExecutorIds().mkString(",")
        return ids, self._spark.maxNumConcurrentTasks(self._profile)

    def registered(self) -> dict[str, Executor]:
        """Return the executors that are connected, whether or not they take tasks."""
        listed = self._spark.statusStore().executorList(True)
        found = [listed.apply(i) for i in range(listed.size())]
        return {
            e.id(): Executor(id=e.id(), host=e.hostPort().rsplit(":", 1)[0], slots=e.maxTasks())
            for e in found
            if e.id() != _DRIVER and self._is_connected(e.id())
        }

    def _is_connected(self, executor: str) -> bool:
        """Return whether an executor takes tasks or is on its orderly way out.

        One that has broken off is no longer active, and stays listed until the reason is known.
        """
        return self._spark.schedulerBackend().isExecutorActive(executor) or self.decommissioning(
            executor
        )

    def decommissioning(self, executor: str) -> bool:
        """Return whether an executor has been told to end."""
        state = self._spark.taskScheduler().getExecutorDecommissionState(executor)
        return bool(state.isDefined())

    def request(self, total: int) -> bool:
        """Ask the cluster manager for so many executors in all."""
        nothing = self._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap({})
        return bool(self._spark.requestTotalExecutors(total, 0, nothing))

    def release(self, executor: str) -> bool:
        """Give an executor back once its tasks have ended."""
        backend = self._spark.schedulerBackend()
        if not self._decommissions:
            ids = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq([executor])
            return bool(backend.killExecutors(ids, False, False, False).nonEmpty())
        info = self._jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            "no longer needed", self._jvm.scala.Option.empty()
        )
        return bool(backend.decommissionExecutor(executor, info, False, False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """Who decides how many executors there are, how many there may be and there are at first."""

    ours: bool
    most_executors: int | None
    first_executors: int


def sizing_of(master: str, setting: Callable[[str, str], str | None], most: int) -> Sizing:
    """Return who sizes an application.

    A standalone cluster gives an application all that it has; the others give what is set.

    Args:
        master: The URL of the application's master.
        setting: Gives a Spark setting by its name, or the default.
        most: ``spark.penstock.maxExecutors``; 0 if it is not set.

    >>> sizing_of("spark://m:7077", {}.get, 0)
    Sizing(ours=True, most_executors=None, first_executors=1048576)
    >>> sizing_of("yarn", {"spark.executor.instances": "3"}.get, 0)
    Sizing(ours=True, most_executors=3, first_executors=3)
    >>> sizing_of("k8s://https://m", {}.get, 8)
    Sizing(ours=True, most_executors=8, first_executors=2)
    >>> dynamic = {"spark.dynamicAllocation.enabled": "true"}
    >>> sizing_of("yarn", dynamic.get, 8)
    Sizing(ours=False, most_executors=8, first_executors=2)
    """
    gives_all = master.startswith(("spark://", "local-cluster"))
    first = UNLIMITED if gives_all else int(setting("spark.executor.instances", "2") or 2)
    ours = setting("spark.dynamicAllocation.enabled", "false") != "true"
    if not ours:
        bound = most or int(setting("spark.dynamicAllocation.maxExecutors", "0") or 0)
    else:
        bound = most or (0 if gives_all else first)
    return Sizing(ours=ours, most_executors=bound or None, first_executors=first)
