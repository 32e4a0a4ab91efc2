"""What can be told in the generated world: relations, their wordings, and the questions they answer.

Slots are letters: ``s`` is the subject (a person, or a town in what is told of towns), ``p`` another
person, ``o`` an object, ``l`` a place, ``t`` a town, ``n`` the name of an animal; the others hold attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Section = Literal["residents", "property", "journeys", "habits", "families", "towns"]


@dataclass(frozen=True)
class Relation:
    """One kind of fact."""

    name: str
    slots: str
    statements: tuple[str, ...]
    """Full sentences that tell the fact."""
    phrase: str
    """Verb phrase after the subject, as bullets and summaries use it."""
    questions: Mapping[str, tuple[str, ...]]
    """Wordings by the slot that is asked for."""
    check: str
    """Yes/no question."""
    section: Section
    unique: str = ""
    """Slots (beside ``s``) whose value occurs at most once in the relation, so that it identifies the
    fact."""
    clauses: Mapping[str, str] = field(default_factory=dict)
    """Descriptions of the value of a slot by the other slots ("the person who hid {o}")."""
    subject: Literal["person", "town"] = "person"


def _relation(
    name: str,
    slots: str,
    statements: list[str],
    phrase: str,
    questions: dict[str, list[str]],
    check: str,
    section: Section,
    *,
    unique: str = "",
    clauses: dict[str, str] | None = None,
    subject: Literal["person", "town"] = "person",
) -> Relation:
    asked = {slot: tuple(wordings) for slot, wordings in questions.items()}
    return Relation(
        name, slots, tuple(statements), phrase, asked, check, section, unique, clauses or {}, subject
    )


RELATIONS: dict[str, Relation] = {
    r.name: r
    for r in (
        _relation(
            "job", "sj",
            ["{s} worked as a {j}.", "{s} was the village {j}.", "{s} earned a living as a {j}.",
             "People knew {s} as a skilled {j}."],
            "worked as a {j}",
            {"j": ["What was the profession of {s}?", "What was the job of {s}?", "What did {s} work as?"]},
            "Did {s} work as a {j}?", "residents",
        ),
        _relation(
            "home", "st",
            ["{s} lived in {t}.", "The house of {s} stood in {t}.", "{s} had a home in {t}."],
            "lived in {t}",
            {"t": ["Where did {s} live?", "In which town did {s} live?"]},
            "Did {s} live in {t}?", "residents", clauses={"t": "the town where {s} lived"},
        ),
        _relation(
            "born", "sy",
            ["{s} was born in {y}.", "{y} was the year when {s} was born."],
            "was born in {y}",
            {"y": ["When was {s} born?", "In which year was {s} born?"]},
            "Was {s} born in {y}?", "residents",
        ),
        _relation(
            "hide", "sol",
            ["{s} hid {o} in {l}.", "{o} was hidden in {l} by {s}.", "Nobody saw {s} hide {o} in {l}."],
            "hid {o} in {l}",
            {"l": ["Where did {s} hide {o}?", "Where was {o} hidden?"], "s": ["Who hid {o}?"],
             "o": ["What did {s} hide in {l}?", "What did {s} hide?"]},
            "Did {s} hide {o} in {l}?", "property", unique="o", clauses={"s": "the person who hid {o}"},
        ),
        _relation(
            "buy", "sop",
            ["{s} bought {o} from {p}.", "{p} sold {o} to {s}.", "{o} was bought by {s} from {p}."],
            "bought {o} from {p}",
            {"s": ["Who bought {o}?"], "p": ["From whom did {s} buy {o}?", "Who sold {o}?"],
             "o": ["What did {s} buy from {p}?", "What did {s} buy?"]},
            "Did {s} buy {o} from {p}?", "property", unique="o",
            clauses={"s": "the person who bought {o}", "p": "the person who sold {o}"},
        ),
        _relation(
            "find", "sol",
            ["{s} found {o} near {l}.", "{o} was found near {l} by {s}.", "Near {l}, {s} came across {o}."],
            "found {o} near {l}",
            {"l": ["Where did {s} find {o}?", "Where was {o} found?"], "s": ["Who found {o}?"],
             "o": ["What did {s} find near {l}?", "What did {s} find?"]},
            "Did {s} find {o} near {l}?", "property", unique="o", clauses={"s": "the person who found {o}"},
        ),
        _relation(
            "give", "sop",
            ["{s} gave {o} to {p}.", "{p} received {o} from {s}.", "{o} was a gift from {s} to {p}."],
            "gave {o} to {p}",
            {"s": ["Who gave {o} to {p}?", "Who gave away {o}?"],
             "p": ["To whom did {s} give {o}?", "Who received {o}?"],
             "o": ["What did {s} give to {p}?", "What did {s} give away?"]},
            "Did {s} give {o} to {p}?", "property", unique="o",
            clauses={"s": "the person who gave away {o}", "p": "the person who received {o}"},
        ),
        _relation(
            "fix", "so",
            ["{s} repaired {o}.", "{o} was repaired by {s}.", "It took {s} three days to repair {o}."],
            "repaired {o}",
            {"s": ["Who repaired {o}?"], "o": ["What did {s} repair?"]},
            "Did {s} repair {o}?", "property", unique="o", clauses={"s": "the person who repaired {o}"},
        ),
        _relation(
            "steal", "so",
            ["{s} stole {o}.", "{o} was stolen by {s}.", "{s} was caught stealing {o}."],
            "stole {o}",
            {"s": ["Who stole {o}?"], "o": ["What did {s} steal?"]},
            "Did {s} steal {o}?", "property", unique="o", clauses={"s": "the person who stole {o}"},
        ),
        _relation(
            "make", "soy",
            ["{s} made {o} in {y}.", "{o} was made by {s} in {y}.", "In {y}, {s} finished making {o}."],
            "made {o} in {y}",
            {"s": ["Who made {o}?"], "o": ["What did {s} make in {y}?", "What did {s} make?"],
             "y": ["When did {s} make {o}?", "In which year was {o} made?"]},
            "Did {s} make {o} in {y}?", "property", unique="o", clauses={"s": "the maker of {o}"},
        ),
        _relation(
            "pet", "san",
            ["{s} kept a {a} called {n}.", "{n} was the {a} of {s}.", "{s} owned a {a} named {n}."],
            "kept a {a} called {n}",
            {"n": ["What was the name of the {a} of {s}?", "What was the {a} of {s} called?"],
             "s": ["Who owned the {a} called {n}?", "Who kept {n}?"], "a": ["What kind of animal was {n}?"]},
            "Did {s} keep a {a} called {n}?", "habits", unique="n", clauses={"s": "the owner of {n}"},
        ),
        _relation(
            "marry", "spt",
            ["{s} married {p} in {t}.", "The wedding of {s} and {p} was held in {t}."],
            "married {p} in {t}",
            {"p": ["Whom did {s} marry?"],
             "t": ["Where did {s} marry {p}?", "Where was the wedding of {s} and {p}?"]},
            "Did {s} marry {p} in {t}?", "families", unique="p", clauses={"p": "the person whom {s} married"},
        ),
        _relation(
            "kin", "skp",
            ["{s} was the {k} of {p}.", "The {k} of {p} was {s}."],
            "was the {k} of {p}",
            {"s": ["Who was the {k} of {p}?"], "p": ["Whose {k} was {s}?"]},
            "Was {s} the {k} of {p}?", "families", clauses={"s": "the {k} of {p}"},
        ),
        _relation(
            "teach", "sp",
            ["{s} learned the trade from {p}.", "{p} taught {s} the trade.", "The teacher of {s} was {p}."],
            "learned the trade from {p}",
            {"p": ["From whom did {s} learn the trade?", "Who was the teacher of {s}?"],
             "s": ["Whom did {p} teach the trade?"]},
            "Did {s} learn the trade from {p}?", "families", unique="p",
            clauses={"p": "the teacher of {s}", "s": "the person taught by {p}"},
        ),
        _relation(
            "trip", "std",
            ["{s} travelled to {t} in {d}.", "In {d}, {s} made a journey to {t}."],
            "travelled to {t} in {d}",
            {"t": ["Where did {s} travel in {d}?", "Where did {s} travel?"],
             "d": ["When did {s} travel to {t}?"],
             "s": ["Who travelled to {t}?"]},
            "Did {s} travel to {t} in {d}?", "journeys", unique="t",
            clauses={"s": "the person who travelled to {t}", "t": "the town to which {s} travelled"},
        ),
        _relation(
            "paint", "sl",
            ["{s} painted {l}.", "A picture of {l} was painted by {s}."],
            "painted {l}",
            {"s": ["Who painted {l}?"], "l": ["What did {s} paint?"]},
            "Did {s} paint {l}?", "habits", unique="l", clauses={"s": "the person who painted {l}"},
        ),
        _relation(
            "fear", "sx",
            ["{s} was afraid of {x}.", "Nothing scared {s} more than {x}."],
            "was afraid of {x}",
            {"x": ["What was {s} afraid of?", "What did {s} fear?"]},
            "Was {s} afraid of {x}?", "habits",
        ),
        _relation(
            "food", "sf",
            ["The favourite food of {s} was {f}.", "{s} loved {f} above all food."],
            "loved {f}",
            {"f": ["What was the favourite food of {s}?", "What did {s} love to eat?"]},
            "Did {s} love {f}?", "habits",
        ),
        _relation(
            "play", "si",
            ["{s} played the {i}.", "{s} was good at the {i}."],
            "played the {i}",
            {"i": ["Which instrument did {s} play?", "What did {s} play?"]},
            "Did {s} play the {i}?", "habits",
        ),
        _relation(
            "argue", "spo",
            ["{s} argued with {p} about {o}.", "{s} and {p} had a quarrel about {o}."],
            "argued with {p} about {o}",
            {"o": ["What did {s} and {p} argue about?"], "p": ["With whom did {s} argue about {o}?"]},
            "Did {s} argue with {p} about {o}?", "families", unique="o",
        ),
        _relation(
            "mayor", "sp",
            ["The mayor of {s} was {p}.", "{p} was the mayor of {s}.", "{s} had chosen {p} as its mayor."],
            "had {p} as its mayor",
            {"p": ["Who was the mayor of {s}?"], "s": ["Of which town was {p} the mayor?"]},
            "Was {p} the mayor of {s}?", "towns", unique="p",
            clauses={"p": "the mayor of {s}", "s": "the town whose mayor was {p}"}, subject="town",
        ),
        _relation(
            "county", "sc",
            ["{s} belonged to the county of {c}.", "{s} was a town in {c}."],
            "was a town in {c}",
            {"c": ["In which county was {s}?", "To which county did {s} belong?"]},
            "Was {s} a town in {c}?", "towns", subject="town",
        ),
        _relation(
            "river", "sr",
            ["{s} lay on {r}.", "{r} flowed through {s}.", "The old part of {s} stood beside {r}."],
            "lay on {r}",
            {"r": ["On which river did {s} lie?", "Which river flowed through {s}?"]},
            "Did {s} lie on {r}?", "towns", subject="town",
        ),
        _relation(
            "goods", "sg",
            ["{s} was known for its {g}.", "Merchants came to {s} for its {g}."],
            "was known for its {g}",
            {"g": ["What was {s} known for?", "For what did merchants come to {s}?"]},
            "Was {s} known for its {g}?", "towns", subject="town",
        ),
        _relation(
            "founded", "sy",
            ["{s} was founded in {y}.", "The oldest house in {s} was built in {y}."],
            "was founded in {y}",
            {"y": ["When was {s} founded?", "In which year was {s} founded?"]},
            "Was {s} founded in {y}?", "towns", subject="town",
        ),
    )
}  # fmt: skip

PERSON_RELATIONS = tuple(r for r in RELATIONS.values() if r.subject == "person")
TOWN_RELATIONS = tuple(r for r in RELATIONS.values() if r.subject == "town")

JOBS = tuple(
    "baker blacksmith carpenter teacher farmer fisherman miller tailor doctor painter weaver "
    "shepherd clerk judge "
    "butcher printer sailor gardener potter hunter midwife postman barber cobbler brewer lawyer "
    "soldier nurse "
    "librarian musician".split()
)
ANIMALS = tuple("dog cat goat pony rabbit parrot goose donkey ferret hen".split())
FEARS = tuple(
    "thunder|spiders|geese|horses|deep water|the dark|ghosts|heights|snakes|bees|fire|mirrors".split("|")
)
FOODS = tuple(
    "plum cake|onion soup|apple pie|smoked fish|barley bread|roast duck|honey buns|pea soup|goat "
    "cheese|cherry jam|"
    "rice pudding|fried eggs|leek stew|pickled beets|ginger bread|lamb pie".split("|")
)
INSTRUMENTS = tuple(
    "fiddle harp cello trumpet piano organ banjo flute accordion guitar mandolin horn".split()
)
GOODS = tuple(
    "wool|salt|cheese|glass|timber|pottery|herring|honey|candles|leather|barley|lace|ropes|bells|apples|paper".split(
        "|"
    )
)
MONTHS = tuple(
    "January February March April May June July August September October November December".split()
)
KINSHIP = (
    ("sister", "brother"), ("aunt", "uncle"), ("niece", "nephew"), ("cousin", "cousin"),
    ("neighbour", "neighbour"), ("daughter", "son"),
)  # fmt: skip
OBJECT_ADJECTIVES = tuple(
    "silver red blue brass wooden golden green broken tiny heavy painted rusty white black yellow "
    "copper carved old "
    "velvet striped glass iron purple leather".split()
)
OBJECTS = tuple(
    "key kite lantern clock ring letter drum map flute basket mirror coin knife hat bell box ladder "
    "cup saddle book "
    "chest compass ribbon vase candle spoon scarf whistle doll chair brooch barrel button crown "
    "sword pipe stamp "
    "necklace statue umbrella".split()
)
PLACE_ADJECTIVES = tuple(
    "old north south east west abandoned stone little upper lower new ruined great hidden royal quiet".split()
)
PLACES = tuple(
    "mill barn chapel bridge tower well orchard stable cellar garden inn forge school library "
    "market harbour quarry "
    "cave bakery cottage cemetery meadow station theatre windmill".split()
)
