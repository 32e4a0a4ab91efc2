"""Names of people, towns, counties, rivers and pets, in two disjoint halves: for training and held out.

Almost all names are composed of syllables, so that a name which was never seen consists of pieces that were.
Which half a composed name belongs to is decided by a hash of its spelling; a closed list of common first
names
belongs to training alone.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Literal

Split = Literal["train", "held_out"]

COMMON_WOMEN = tuple(
    "Mara Elin Greta Ruth Nora Ida Clara Hedda Agnes Edith Flora Hilda Irma Julia Kitty Lotte Mabel "
    "Nelly Olive "
    "Petra Rosa Selma Tilda Ursula Vera Wilma Alma Berta Cora Dora Emma Fanny Gerda Helga Ines "
    "Jenny Karin Lydia "
    "Martha Naomi".split()
)
COMMON_MEN = tuple(
    "Tobias Anton Bruno Carl Derek Edgar Felix Gustav Henry Igor Jacob Klaus Leon Martin Nils Oscar "
    "Peter Quentin "
    "Ralf Simon Tomas Ulrich Victor Walter Xavier Albert Boris Conrad Daniel Emil Frank George Hugo "
    "Ivan Jonas "
    "Karl Lukas Magnus Norman Otto".split()
)
COMMON_PETS = tuple(
    "Biscuit Pepper Smoky Patch Ginger Shadow Clover Misty Snowy Tiger Bramble Pickle Domino Cookie "
    "Daisy".split()
)
FIRST_STEMS = tuple(
    "Mar Bel Cor Dal El Fay Gil Han Is Jor Kal Lor Min Ner Or Pel Ros Sel Tam Val Wil Yar Zin Ad Bri".split()
)
WOMEN_ENDINGS = tuple("ina ette ora issa anne ola ira una ella ita".split())
MEN_ENDINGS = tuple("ek or wyn in as ert old ric mar us".split())
LAST_STEMS = tuple(
    "Ash Bram Cald Dorn Eld Fen Gold Hart Iver Kess Lang Marl Nor Oak Pell Quill Rav Sten Thorn Ull "
    "Var Wick Yar "
    "Zell Brook Crow Dun Falk Grim Holl Kirk Lund Mor Nett Pike Rook Sand Tarn Wolf Birk".split()
)
LAST_ENDINGS = tuple(
    "by wood field ley ton man berg stone well more ford ham shaw ridge lock mark son dale worth "
    "hurst gate burn "
    "feld wright mere land croft nell den ings".split()
)
TOWN_STEMS = tuple(
    "Dor Bel Car Hol Win Ax Stan Lin Mel Ros Tur Vel Kin Gar Har Pen Sil Wex Bor Ost Gil Tam Lor Fal".split()
)
TOWN_ENDINGS = tuple(
    "wick minster bury mouth haven combe bridge stead thorpe cliff pool grove port chester fold "
    "market".split()
)
COUNTY_ENDINGS = tuple("shire vale moor reach".split())
RIVER_STEMS = tuple("Al Bram Cas Del Er Fal Gan Hes Il Jur Ker Lam Mor Nid Os Par".split())
RIVER_ENDINGS = tuple("dow sey nock tham vel ris bourne ney lin wen".split())
PET_STEMS = tuple("Bis Nib Pip Tuf Wob Muf Fid Rum Zig Dot Kip Mop Tan Bon Jig".split())
PET_ENDINGS = tuple("kin ble ster zy let by dle mo ty ling".split())

HELD_OUT_ONE_IN = 4
NEVER_USED = frozenset({"Deldow", "Elette", "Nerek", "Osthaven", "Parnock", "Roshaven", "Stangrove"})
"""Held-out names that the shipped tokenizer cuts into a piece which occurs in no training name."""


def half_of(name: str) -> Split:
    """The half that a composed name belongs to; a quarter of all names is held out."""
    return "held_out" if zlib.crc32(name.encode()) % HELD_OUT_ONE_IN == 0 else "train"


class NameSource:
    """Draws names of one half; the gender of a first name can be asked for."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self._women = _composed(FIRST_STEMS, WOMEN_ENDINGS, split)
        self._men = _composed(FIRST_STEMS, MEN_ENDINGS, split)
        self._all_women = frozenset(self._women) | frozenset(COMMON_WOMEN)
        self.last_names = _composed(LAST_STEMS, LAST_ENDINGS, split)
        self.towns = _composed(TOWN_STEMS, TOWN_ENDINGS, split)
        self.counties = _composed(TOWN_STEMS, COUNTY_ENDINGS, split)
        self.rivers = _composed(RIVER_STEMS, RIVER_ENDINGS, split)
        self._pets = _composed(PET_STEMS, PET_ENDINGS, split)

    def first_name(self, rng: random.Random) -> str:
        """A first name; in training a third of them comes from the closed list."""
        woman = rng.random() < 0.5
        if self.split == "train" and rng.random() < 0.35:
            return rng.choice(COMMON_WOMEN if woman else COMMON_MEN)
        return rng.choice(self._women if woman else self._men)

    def is_woman(self, full_name: str) -> bool:
        """Whether "she" refers to the person."""
        return full_name.split()[0] in self._all_women

    def last_name(self, rng: random.Random) -> str:
        """A last name."""
        return rng.choice(self.last_names)

    def pet(self, rng: random.Random) -> str:
        """A name for an animal."""
        if self.split == "train" and rng.random() < 0.35:
            return rng.choice(COMMON_PETS)
        return rng.choice(self._pets)

    def all_names(self) -> frozenset[str]:
        """Every single word that can be part of a name of this half."""
        closed = COMMON_WOMEN + COMMON_MEN + COMMON_PETS if self.split == "train" else ()
        groups = (self._women, self._men, self.last_names, self.towns, self.counties, self.rivers, self._pets)
        return frozenset(closed).union(*groups)


def draw_distinct(draw: Callable[[], str], count: int) -> list[str]:
    """``count`` different values of ``draw``, in the order drawn.

    Raises:
        ValueError: if they cannot be found within 200 draws per value.
    """
    values: dict[str, None] = {}
    for _ in range(200 * max(1, count)):
        if len(values) == count:
            return list(values)
        values[draw()] = None
    if len(values) == count:
        return list(values)
    raise ValueError(f"asked for {count} different names, found {len(values)}: ask for fewer")


def _composed(stems: tuple[str, ...], endings: tuple[str, ...], split: Split) -> tuple[str, ...]:
    names = (s + e for s in stems for e in endings)
    return tuple(name for name in names if half_of(name) == split and name not in NEVER_USED)
