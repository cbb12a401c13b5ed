"""The contract of a store as a test suite. To test a store, subclass ``StoreContract`` in a test module::

    from aguila.testing import StoreContract

    class TestMyStore(StoreContract):
        def make(self, clock, tmp_path):
            self.database = ...  # a new, empty one
            return MyStore(self.database, clock=clock, monotonic=clock.monotonic)

        def make_second(self, clock, tmp_path):
            return MyStore(self.database, clock=clock, monotonic=clock.monotonic)

Every sentence of ``aguila.store.contract`` is a test. They need pytest and anyio.
"""

from __future__ import annotations

import random
from typing import ClassVar

import pytest

from aguila.store import Store
from aguila.testing.store_contract.archives import ArchivesContract
from aguila.testing.store_contract.beginning import BeginContract
from aguila.testing.store_contract.cancelling import CancelContract
from aguila.testing.store_contract.compaction import CompactionContract
from aguila.testing.store_contract.cursors import CursorsContract
from aguila.testing.store_contract.files import FilesContract
from aguila.testing.store_contract.interrupts import InterruptsContract
from aguila.testing.store_contract.leases import LeaseContract
from aguila.testing.store_contract.lists import ListsContract
from aguila.testing.store_contract.log import LogContract
from aguila.testing.store_contract.model import Player
from aguila.testing.store_contract.opening import OpeningContract
from aguila.testing.store_contract.quotas import QuotasContract
from aguila.testing.store_contract.removal import RemovalContract
from aguila.testing.store_contract.repeats import RepeatsContract
from aguila.testing.store_contract.requests import RequestsContract
from aguila.testing.store_contract.scopes import ScopesContract
from aguila.testing.store_contract.sharing import SharingContract
from aguila.testing.store_contract.support import Clock
from aguila.testing.store_contract.tails import TailsContract
from aguila.testing.store_contract.threads import ThreadsContract
from aguila.testing.store_contract.turns import TurnsContract
from aguila.testing.store_contract.viewers import ViewersContract
from aguila.testing.store_contract.wakeups import WakeupsContract
from aguila.testing.store_contract.writing import WriteContract


class StoreContract(
    OpeningContract,
    ScopesContract,
    BeginContract,
    WriteContract,
    RepeatsContract,
    LeaseContract,
    CancelContract,
    ViewersContract,
    LogContract,
    TailsContract,
    WakeupsContract,
    CursorsContract,
    RequestsContract,
    TurnsContract,
    CompactionContract,
    InterruptsContract,
    ThreadsContract,
    ListsContract,
    RemovalContract,
    FilesContract,
    QuotasContract,
    ArchivesContract,
    SharingContract,
):
    """All parts of the contract. Subclass it and implement ``make``.

    Implement ``make_second`` too if several processes can use the database: then two stores race.

    ``COMPACTS``: False for a store that keeps all events of old runs. ``STEPS``: how long a random history is.
    """

    STEPS: ClassVar = 400

    @pytest.mark.parametrize("seed", range(6))
    async def test_random_operations_agree_with_a_simple_model(self, store: Store, clock: Clock, seed: int):
        await Player(store, clock, random.Random(seed)).play(self.STEPS)
