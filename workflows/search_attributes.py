"""Name the search attributes, in the one list that registering and upserting both read.

Low cardinality and no evidence in them; at most six. An upsert is a command, so a new one needs a
patch in a running workflow.
"""

from temporalio.common import SearchAttributeKey

TARGET = SearchAttributeKey.for_keyword("BurnproofTarget")
KIND = SearchAttributeKey.for_keyword("BurnproofKind")
VERDICT = SearchAttributeKey.for_keyword("BurnproofVerdict")
PHASE = SearchAttributeKey.for_keyword("BurnproofPhase")
TRIGGER = SearchAttributeKey.for_keyword("BurnproofTrigger")

ALL = (TARGET, KIND, VERDICT, PHASE, TRIGGER)
