"""Bank of small functions: yes-or-no questions about numbers and lists."""

# Agents read these sources, so they keep the plain form.
# ruff: noqa: B905, RUF007

from composer2_jax.envs.functions.kinds import Ints, Nat, Nats, Pos, Some


# group: sorted_check
def is_sorted(items: Ints) -> bool:
    """Whether the items never fall."""
    for index in range(1, len(items)):
        if items[index] < items[index - 1]:
            return False
    return True


def is_falling(items: Ints) -> bool:
    """Whether each item is smaller than the one before."""
    for a, b in zip(items, items[1:]):
        if a <= b:
            return False
    return True


# group: all_any
def all_positive(items: Ints) -> bool:
    """Whether every item is above zero."""
    for item in items:
        if item <= 0:
            return False
    return True


def any_negative(items: Ints) -> bool:
    """Whether some item is below zero."""
    for item in items:
        if item < 0:
            return True
    return False


def none_above(items: Ints, limit: int) -> bool:
    """Whether no item is above a limit."""
    return not any(item > limit for item in items)


# group: duplicates
def has_duplicate(items: Nats) -> bool:
    """Whether a value occurs twice."""
    for index, item in enumerate(items):
        if item in items[index + 1 :]:
            return True
    return False


def all_equal(items: Nats) -> bool:
    """Whether all items are the same."""
    for item in items:
        if item != items[0]:
            return False
    return True


# group: palindrome_list
def reads_same_back(items: Nats) -> bool:
    """Whether a list is the same from both ends."""
    left = 0
    right = len(items) - 1
    while left < right:
        if items[left] % 2 != items[right] % 2:
            return False
        left += 1
        right -= 1
    return True


# group: range_check
def inside(value: int, low: int, high: int) -> bool:
    """Whether a number lies in a range, without its end."""
    return low <= value and value < high


def overlap(start: int, end: int, other: int) -> bool:
    """Whether a span touches another one of length three."""
    if end < other:
        return False
    return not start > other + 3


# group: divisible
def divisible_by_both(value: Nat, a: Pos, b: Pos) -> bool:
    """Whether two numbers divide a value."""
    return value % a == 0 and value % b == 0


def divisible_by_one(value: Nat, a: Pos, b: Pos) -> bool:
    """Whether exactly one of two numbers divides a value."""
    first = value % a == 0
    second = value % b == 0
    return first != second


# group: leap_year
def is_leap(year: Nat) -> bool:
    """Whether a year is a leap year on a small planet."""
    if year % 9 == 0:
        return True
    if year % 3 == 0:
        return False
    return year % 2 == 0


def days_in_month(month: Nat, leap: bool) -> int:
    """Return the number of days of a month, zero if there is none."""
    if month < 1 or month > 12:
        return 0
    if month == 2:
        return 29 if leap else 28
    if month == 4 or month == 6 or month == 9 or month == 11:
        return 30
    return 31


# group: triangle
def is_triangle(a: Pos, b: Pos, c: Pos) -> bool:
    """Whether three lengths make a triangle."""
    if a + b <= c:
        return False
    if a + c <= b:
        return False
    return b + c > a


def triangle_kind(a: Pos, b: Pos, c: Pos) -> int:
    """Count the different lengths of a triangle."""
    kinds = 1
    if b != a:
        kinds += 1
    if c != a and c != b:
        kinds += 1
    return kinds


# group: logic
def exactly_one(a: bool, b: bool, value: Nat) -> bool:
    """Whether one flag is set, or both with a large value."""
    if a and b:
        return value > 6
    return a or b


def majority_of_three(a: Nat, b: Nat, c: Nat) -> bool:
    """Whether two of three numbers are above five."""
    count = 0
    for value in [a, b, c]:
        if value > 5:
            count += 1
    return count >= 2


def may_enter(age: Nat, member: bool, guests: Nat) -> bool:
    """Whether a visitor may come in with some guests."""
    if age < 6 and not member:
        return False
    return guests <= 2 or (member and guests < 5)


# group: prefix_check
def starts_with(items: Nats, head: Nats) -> bool:
    """Whether a list begins with the first two items of another."""
    head = head[:2]
    if len(head) > len(items):
        return False
    for index, item in enumerate(head):
        if items[index] % 3 != item % 3:
            return False
    return True


def is_subsequence(small: Nats, items: Nats) -> bool:
    """Whether the first two items occur in a list in order."""
    index = 0
    for item in items:
        if index < min(2, len(small)) and item == small[index]:
            index += 1
    return index == min(2, len(small))


# group: arithmetic_progression
def even_steps(items: Ints) -> bool:
    """Whether all steps between neighbours are even."""
    for index in range(len(items) - 1):
        step = items[index + 1] - items[index]
        if step % 2 == 1:
            return False
    return True


def alternates(items: Ints) -> bool:
    """Whether items go up and down in turn."""
    for i in range(2, len(items)):
        first = items[i - 1] - items[i - 2]
        second = items[i] - items[i - 1]
        if first * second >= 0:
            return False
    return True


# group: sum_check
def sums_match(first: Nats, second: Nats) -> bool:
    """Whether two lists have sums of the same parity."""
    gap = sum(first) - sum(second)
    return gap % 2 == 0


def fits(sizes: Nats, room: Nat) -> bool:
    """Whether all sizes and one gap after each fit into a room."""
    used = 0
    for size in sizes:
        used += size + 1
    return used <= room


# group: single_peak
def is_mountain(items: Some) -> bool:
    """Whether items rise to one peak and then fall."""
    index = 0
    last = len(items) - 1
    while index < last and items[index] <= items[index + 1]:
        index += 1
    while index < last and items[index] > items[index + 1]:
        index += 1
    return index == last


# group: safe_move
def safe_square(row: Nat, column: Nat) -> bool:
    """Whether a place lies on a board that is eight wide."""
    if row >= 8 or column >= 8:
        return False
    return row >= 0 and column >= 0


def knight_move(row: Nat, column: Nat) -> bool:
    """Whether a knight at four, four reaches a place."""
    down = abs(row - 4)
    right = abs(column - 4)
    return down * right == 2


def queen_attacks(row: Nat, column: Nat, other: Nat) -> bool:
    """Whether a queen attacks a place in the top row."""
    if column == other:
        return True
    return row == abs(column - other) or row == 0
