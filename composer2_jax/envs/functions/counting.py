"""Bank of small functions: counting and adding over lists of integers."""

# Agents read these sources, so they keep the plain form.
# ruff: noqa: B905, RUF007

from composer2_jax.envs.functions.kinds import Ints, Nat, Nats, Pos


# group: count_parity
def count_even(items: Ints) -> int:
    """Count the even numbers of a list."""
    count = 0
    for item in items:
        if item % 2 == 0:
            count += 1
    return count


def count_odd(items: Ints) -> int:
    """Count the odd numbers of a list."""
    count = 0
    for item in items:
        if item % 2 == 1:
            count += 1
    return count


def sum_even(items: Ints) -> int:
    """Add the even numbers of a list."""
    total = 0
    for item in items:
        if item % 2 == 0:
            total += item
    return total


# group: count_sign
def count_positive(items: Ints) -> int:
    """Count the numbers above zero."""
    return sum(1 for item in items if item > 0)


def count_negative(items: Ints) -> int:
    """Count the numbers below zero."""
    return len([item for item in items if item < 0])


def sum_positive(items: Ints) -> int:
    """Add the numbers above zero."""
    total = 0
    for item in items:
        total += max(item, 0)
    return total


# group: count_range
def count_between(items: Ints, low: int, high: int) -> int:
    """Count the numbers within a range, ends included."""
    count = 0
    for item in items:
        if low <= item and item <= high:
            count += 1
    return count


def count_outside(items: Ints, low: int) -> int:
    """Count the numbers outside a range that is five wide."""
    high = low + 5
    count = 0
    for item in items:
        if item < low or item > high:
            count += 1
    return count


# group: count_value
def count_value(items: Ints, value: int) -> int:
    """Count how often a value occurs."""
    count = 0
    for item in items:
        if item == value:
            count += 1
    return count


def count_until(items: Ints, value: int) -> int:
    """Count the items before the first one equal to a value."""
    count = 0
    for item in items:
        if item == value:
            break
        count += 1
    return count


# group: total
def total_of(items: Ints) -> int:
    """Add all numbers of a list, starting at zero."""
    total = 0
    for item in items:
        total += item
    return total


def product_of(items: Ints) -> int:
    """Multiply all numbers of a list."""
    result = 1
    for item in items:
        result *= item
    return result


def sum_squares(items: Ints) -> int:
    """Add the squares of a list."""
    total = 0
    for item in items:
        total += item * item
    return total


# group: alternate_sum
def alternate_sum(items: Ints) -> int:
    """Add and subtract the items in turn."""
    total = 0
    sign = 1
    for item in items:
        total += sign * item
        sign = 0 - sign
    return total


def sum_every_second(items: Ints) -> int:
    """Add the items at even positions."""
    total = 0
    for index in range(0, len(items), 2):
        total += items[index]
    return total


# group: weighted_sum
def weighted_sum(items: Ints) -> int:
    """Add the items times their position from one."""
    total = 0
    for index, item in enumerate(items):
        total += (index + 1) * item
    return total


def dot(first: Ints, second: Ints) -> int:
    """Return the dot product over the shorter length."""
    total = 0
    for a, b in zip(first, second):
        total += a * b
    return total


# group: mean
def mean_floor(items: Ints) -> int:
    """Return the mean rounded down, zero for an empty list."""
    if len(items) == 0:
        return 0
    return sum(items) // len(items)


def trimmed_sum(items: Ints) -> int:
    """Add all but one smallest and one largest item."""
    if len(items) < 3:
        return 0
    return sum(items) - max(items) - min(items)


# group: spread
def spread(items: Ints) -> int:
    """Return the difference of the largest and the smallest."""
    if not items:
        return 0
    return max(items) - min(items)


def total_change(items: Ints) -> int:
    """Add the sizes of all steps between neighbours."""
    total = 0
    for index in range(1, len(items)):
        total += abs(items[index] - items[index - 1])
    return total


# group: count_pairs
def count_pairs(items: Nats, target: Nat) -> int:
    """Count the pairs of items with a given sum."""
    count = 0
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            if items[i] + items[j] == target:
                count += 1
    return count


def count_inversions(items: Ints) -> int:
    """Count the pairs that stand in the wrong order."""
    count = 0
    for i in range(len(items)):
        for j in range(i):
            if items[j] > items[i]:
                count += 1
    return count


# group: count_neighbours
def count_rises(items: Ints) -> int:
    """Count the items larger than the one before."""
    count = 0
    for index in range(1, len(items)):
        if items[index] > items[index - 1]:
            count += 1
    return count


def count_repeats(items: Nats) -> int:
    """Count the items equal to the one before."""
    count = 0
    for a, b in zip(items, items[1:]):
        if a == b:
            count += 1
    return count


def count_peaks(items: Ints) -> int:
    """Count the inner items larger than both neighbours."""
    count = 0
    for index in range(1, len(items) - 1):
        if items[index] > items[index - 1] and items[index] > items[index + 1]:
            count += 1
    return count


# group: count_distinct
def count_distinct(items: Nats) -> int:
    """Count the different values of a list."""
    count = 0
    for index, item in enumerate(items):
        if item not in items[:index]:
            count += 1
    return count


def count_single(items: Nats) -> int:
    """Count the values that occur exactly once."""
    total = 0
    for item in items:
        if items.count(item) == 1:
            total += 1
    return total


# group: prefix_limit
def count_within_budget(items: Nats, budget: Nat) -> int:
    """Count the leading items that fit into a budget."""
    count = 0
    for item in items:
        if item > budget:
            break
        budget -= item
        count += 1
    return count


def sum_until_limit(items: Nats, limit: Nat) -> int:
    """Add leading items while the total stays within a limit."""
    total = 0
    for item in items:
        if total + item > limit:
            return total
        total += item
    return total


# group: multiples
def sum_multiples(limit: Nat, step: Pos) -> int:
    """Add the multiples of a step below a limit."""
    total = 0
    for value in range(step, limit, step):
        total += value
    return total


def count_multiples(items: Nats, step: Pos) -> int:
    """Count the items that a step divides."""
    count = 0
    for item in items:
        if item % step == 0 and item != 0:
            count += 1
    return count


# group: score
def score_rolls(rolls: Nats) -> int:
    """Add rolls, where a six counts double and a zero costs two."""
    score = 0
    for roll in rolls:
        if roll == 6:
            score += 2 * roll
        elif roll == 0:
            score -= 2
        else:
            score += roll
    return score


def streak_score(results: Nats) -> int:
    """Give each hit above two as many points as its streak is long."""
    score = 0
    streak = 0
    for result in results:
        if result > 2:
            streak += 1
            score += streak
        else:
            streak = 0
    return score
