"""A small corpus of our own to search in: passages, and a question for each of the first.

It exists to see a broken embedding service by what it does to a search. The questions share words
with their passage, as people's do, so that even a model that only knows words finds most of them.
"""

PAIRS: tuple[tuple[str, str], ...] = (
    ("A tuple is a sequence that cannot be changed after it was made.", "can a tuple be changed"),
    ("A list grows by append and shrinks by pop.", "how does a list grow"),
    ("A dictionary maps keys to values and keeps their order.", "what maps keys to values"),
    ("A set holds each element once and has no order.", "does a set hold an element twice"),
    ("The lambda expression makes a small function without a name.", "what is a lambda expression"),
    ("A generator yields its values one after another.", "when does a generator yield"),
    ("The with statement closes a file also after an error.", "which statement closes a file"),
    ("An exception is raised with raise and caught with except.", "how is an exception caught"),
    ("The finally clause runs whether or not an exception came.", "when does finally run"),
    ("The import statement finds a module and binds its name.", "what does import bind"),
    ("A package is a folder of modules.", "is a package a folder"),
    ("A class is a template for objects of one kind.", "what is a class a template for"),
    ("The method receives its object as the first argument.", "which argument does a method get"),
    ("Inheritance lets a class take methods from its base.", "what is inheritance from a base"),
    ("A decorator wraps a function when it is defined.", "what does a decorator wrap"),
    ("The assert statement checks a condition while debugging.", "what does assert check"),
    ("The global statement names variables of the module.", "why a global statement"),
    ("The nonlocal statement reaches variables of the outer function.", "what does nonlocal reach"),
    ("The del statement removes a name or an item.", "how to remove an item with del"),
    ("The pass statement does nothing at all.", "what does pass do"),
    ("A break ends the nearest loop.", "what ends a loop"),
    ("The continue statement goes on with the next round of the loop.", "how to continue a loop"),
    ("The while loop repeats as long as its condition is true.", "when does a while loop repeat"),
    ("The for loop takes one item after another from an iterable.", "what does a for loop take"),
    ("Integers have no largest value and never overflow.", "do integers overflow"),
    ("Floating point numbers are stored in base two.", "in which base are floating numbers"),
    ("Complex numbers have a real and an imaginary part.", "which part do complex numbers have"),
    ("Strings hold Unicode characters.", "which characters do strings hold"),
    ("Bytes are integers from 0 to 255.", "which integers are bytes"),
    ("A slice selects a range of a sequence.", "what selects a range of a sequence"),
    ("Comparisons can be chained without and.", "can comparisons be chained"),
    ("The and operator evaluates its right side only if needed.", "when does and evaluate"),
    ("A coroutine is defined with async and awaited.", "what is a coroutine with async"),
    ("The debugger steps through code line by line.", "how does a debugger step"),
    ("An attribute is reached with a dot.", "how is an attribute reached"),
    ("Descriptors customise how an attribute is looked up.", "what do descriptors customise"),
    ("Metaclasses make classes.", "what do metaclasses make"),
    ("Slots save the memory of the dictionary of an instance.", "how do slots save memory"),
    ("Names are bound by assignment.", "how are names bound"),
    ("Indentation groups lines into blocks.", "what groups lines into blocks"),
)

PASSAGES = tuple(passage for passage, _ in PAIRS)
QUESTIONS = tuple(question for _, question in PAIRS)
NEAREST = 5
"""How many passages a search returns. Source: the measure is called accuracy@5."""
