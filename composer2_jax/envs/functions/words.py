"""Bank of small functions: strings, letter by letter."""

# Agents read these sources, so they keep the plain form.
# ruff: noqa: B905, RUF007

from composer2_jax.envs.functions.kinds import Char, Nat, Nest, Pos, Text, Word


# group: count_letters
def count_vowels(word: Word) -> int:
    """Count the vowels of a word."""
    count = 0
    for letter in word:
        if letter in "aeiou":
            count += 1
    return count


def count_consonants(word: Word) -> int:
    """Count the letters that are not vowels."""
    count = 0
    for letter in word:
        if letter not in "aeiou":
            count += 1
    return count


def count_upper(text: Text) -> int:
    """Count the capital letters."""
    total = 0
    for letter in text:
        if letter.isupper():
            total += 1
    return total


# group: count_words
def count_words(text: Text) -> int:
    """Count the words between spaces."""
    count = 0
    inside = False
    for letter in text:
        if letter == " ":
            inside = False
        elif not inside:
            inside = True
            count += 1
    return count


def longest_word(text: Text) -> int:
    """Return the length of the longest word."""
    best = 0
    for word in text.split(" "):
        if len(word) > best:
            best = len(word)
    return best


# group: reverse_text
def reverse_text(word: Word) -> str:
    """Read a word backwards."""
    result = ""
    for letter in word:
        result = letter + result
    return result


def reverse_after(word: Word, index: Nat) -> str:
    """Turn around the letters after a place."""
    index = index % 4
    tail = word[index:]
    return word[:index] + "".join(reversed(tail))


# group: palindrome
def is_palindrome(word: Word) -> bool:
    """Whether a word reads the same backwards."""
    for index in range(len(word) // 2):
        if word[index] != word[len(word) - 1 - index]:
            return False
    return True


def mirror_count(word: Word) -> int:
    """Count the letters that equal their mirror."""
    count = 0
    last = len(word) - 1
    for index in range(len(word)):
        if word[index] == word[last - index]:
            count += 1
    return count


# group: caesar
def shift_letter(letter: Char, steps: Nat) -> str:
    """Move a letter along the alphabet and around."""
    place = ord(letter) - 97
    place = (place + steps * 3) % 26
    return chr(place + 97)


def caesar(word: Word, steps: Pos) -> str:
    """Move every letter along an alphabet of five."""
    result = ""
    for letter in word:
        place = (ord(letter) - 97 + steps) % 5
        result += chr(97 + place)
    return result


# group: case
def swap_case(text: Text) -> str:
    """Turn small letters into capitals and back."""
    result = ""
    for letter in text:
        if letter.isupper():
            result += letter.lower()
        else:
            result += letter.upper()
    return result


def title_case(text: Text) -> str:
    """Make the first letter of each word a capital."""
    result = ""
    start = True
    for letter in text:
        if start:
            letter = letter.upper()
        result += letter
        start = letter == " "
    return result


def every_second_upper(word: Word) -> str:
    """Make every second letter a capital."""
    result = ""
    for index, letter in enumerate(word):
        if index % 2 == 1:
            letter = letter.upper()
        result = result + letter
    return result


# group: remove_letters
def remove_vowels(word: Word) -> str:
    """Leave the vowels out of a word."""
    result = ""
    for letter in word:
        if letter != "a" and letter != "e":
            result += letter
    return result


def remove_doubles(word: Word) -> str:
    """Keep one of equal neighbouring letters."""
    result = ""
    for letter in word:
        if not result.endswith(letter):
            result += letter
    return result


def keep_digits(text: Text) -> str:
    """Keep digits and capital letters only."""
    result = ""
    for letter in text:
        if letter.isdigit() or letter.isupper():
            result += letter
    return result


# group: run_length
def run_lengths(word: Word) -> list[int]:
    """List the lengths of the runs of equal letters."""
    runs: list[int] = []
    for index in range(len(word)):
        if index > 0 and word[index] == word[index - 1]:
            runs[-1] += 1
        else:
            runs.append(1)
    return runs


def longest_letter_run(word: Word) -> int:
    """Return the length of the longest run of one letter."""
    best = 0
    run = 0
    for index in range(len(word)):
        if index > 0 and word[index] != word[index - 1]:
            run = 0
        run += 1
        best = max(best, run)
    return best


# group: find_letter
def find_letter(word: Word, letter: Char) -> int:
    """Find the first place of a letter, or -1."""
    index = 0
    while index < len(word):
        if word[index] == letter:
            return index
        index += 1
    return -1


def count_letter(word: Word, letter: Char) -> int:
    """Count a letter, twice if it comes first."""
    count = 0
    for index, other in enumerate(word):
        if other == letter:
            count += 1
            if index == 0:
                count += 1
    return count


# group: brackets
def is_balanced(text: Nest) -> bool:
    """Whether brackets close in order."""
    depth = 0
    for letter in text:
        if letter == "(":
            depth += 1
        else:
            depth -= 1
        if depth < 0:
            return False
    return depth == 0


def bracket_depth(text: Nest) -> int:
    """Return the deepest level of open brackets."""
    depth = 0
    best = 0
    for letter in text:
        if letter == "(":
            depth += 1
            best = max(best, depth)
        elif depth > 0:
            depth -= 1
    return best


# group: anagram
def is_anagram(first: Word, second: Word) -> bool:
    """Whether two words have the same first sorted letters."""
    a = sorted(first)[:1]
    b = sorted(second)[:1]
    return a == b and len(first) % 2 == len(second) % 2


def common_letters(first: Word, second: Word) -> int:
    """Count the letters of one word that the other has."""
    count = 0
    for letter in first:
        if letter in second:
            count += 1
    return count


# group: common_prefix
def common_prefix(first: Word, second: Word) -> int:
    """Return the length of the common beginning."""
    size = 0
    while size < min(len(first), len(second)) and first[size] == second[size]:
        size += 1
    return size


def letter_changes(first: Word, second: Word) -> int:
    """Count the places where two words differ."""
    count = abs(len(first) - len(second))
    for a, b in zip(first, second):
        if a != b:
            count += 1
    return count


# group: padding
def pad_left(word: Word, width: Nat) -> str:
    """Add dots on the left up to a width."""
    while len(word) < width:
        word = "." + word
    return word


def centre(word: Word, width: Nat) -> str:
    """Put dots on both sides up to a width."""
    gap = max(width - len(word), 0)
    left = gap // 2
    right = gap - left
    return "." * left + word + "." * right


def shorten(word: Word, width: Pos) -> str:
    """Cut a long word and mark the cut with a dot."""
    if len(word) <= width:
        return word
    return word[: width - 1] + "."


# group: join_words
def initials(text: Text) -> str:
    """Join the first letters of the words."""
    result = ""
    for word in text.split(" "):
        if len(word) > 0:
            result += word[0]
    return result


def swap_halves(word: Word) -> str:
    """Put the second half of a word before the first."""
    half = (len(word) + 1) // 2
    return word[half:] + word[:half]


# group: repeat_text
def stretch(word: Word) -> str:
    """Repeat each letter by its place, three times at most."""
    result = ""
    for index, letter in enumerate(word):
        result += letter * min(index + 1, 3)
    return result


def repeat_text(word: Word, times: Pos) -> str:
    """Repeat a word with dashes between, twice at least."""
    times = max(2, min(times, 4))
    result = word
    for _ in range(times - 1):
        result += "-" + word
    return result


# group: letter_value
def word_value(word: Word) -> int:
    """Add the places of the letters in the alphabet."""
    total = 0
    for letter in word:
        total += ord(letter) - 96
    return total


def smallest_letter(word: Word) -> str:
    """Return the first letter in alphabetical order, or a dash."""
    best = "-"
    for letter in word:
        if best == "-" or letter < best:
            best = letter
    return best


# group: rises_in_word
def letters_rise(word: Word) -> bool:
    """Whether letters never go back in the alphabet."""
    for index in range(len(word) - 1):
        if word[index] > word[index + 1]:
            return False
    return True


def double_letter(word: Word) -> bool:
    """Whether two equal letters stand side by side."""
    for a, b in zip(word, word[1:]):
        if a == b:
            return True
    return False


# group: split_text
def before_mark(word: Word, mark: Char) -> str:
    """Return the part of a word before a mark."""
    result = ""
    for letter in word:
        if letter == mark:
            return result
        result += letter
    return result


def count_parts(word: Word, mark: Char) -> int:
    """Count the parts that a mark cuts a word into."""
    parts = 1
    for letter in word:
        if letter == mark:
            parts += 1
    return parts
