"""Bank of small functions: lists that become other lists."""

# Agents read these sources, so they keep the plain form.
# ruff: noqa: RUF005

from composer2_jax.envs.functions.kinds import Ints, Nat, Nats, Pos, Rise


# group: filter_items
def keep_even(items: Ints) -> list[int]:
    """Keep the even numbers in order."""
    result = []
    for item in items:
        if item % 2 == 0:
            result.append(item)
    return result


def keep_above(items: Ints, limit: int) -> list[int]:
    """Keep the numbers above a limit, and all zeros."""
    return [item for item in items if item > limit or item == 0]


def drop_value(items: Nats, value: Nat) -> list[int]:
    """Leave out one value, and all zeros."""
    result = []
    for item in items:
        if item != value and item != 0:
            result.append(item)
    return result


# group: map_items
def double_all(items: Ints) -> list[int]:
    """Double every number and add one."""
    return [item * 2 + 1 for item in items]


def halve_even(items: Ints) -> list[int]:
    """Halve the even numbers and leave the others."""
    result = []
    for item in items:
        if item % 2 == 0:
            item = item // 2
        result.append(item)
    return result


# group: clip_items
def clip_all(items: Ints, low: int) -> list[int]:
    """Bring all numbers into a range that is four wide."""
    high = low + 4
    result = []
    for item in items:
        result.append(max(low, min(item, high)))
    return result


def replace_negative(items: Ints) -> list[int]:
    """Put a zero in the place of each negative number."""
    result = []
    for item in items:
        if item < 0:
            result.append(0)
        else:
            result.append(item)
    return result


# group: running
def running_sum(items: Ints) -> list[int]:
    """List the sums of all beginnings."""
    result = []
    total = 0
    for item in items:
        total += item
        result.append(total)
    return result


def running_max(items: Nats) -> list[int]:
    """List the largest item seen so far."""
    result = []
    best = 0
    for item in items:
        best = max(best, item)
        result.append(best)
    return result


# group: differences
def differences(items: Ints) -> list[int]:
    """List the steps between neighbours."""
    result = []
    for index in range(1, len(items)):
        result.append(items[index] - items[index - 1])
    return result


def pair_sums(items: Ints) -> list[int]:
    """List the sums of neighbours."""
    return [items[i] + items[i + 1] for i in range(len(items) - 1)]


# group: reverse
def reverse(items: Ints) -> list[int]:
    """Return the items from last to first."""
    result = []
    index = len(items) - 1
    while index >= 0:
        result.append(items[index])
        index -= 1
    return result


def reverse_head(items: Ints, size: Nat) -> list[int]:
    """Turn the first few items around."""
    size = min(size, len(items))
    head = [items[size - 1 - index] for index in range(size)]
    return head + items[size:]


# group: rotate
def rotate_left(items: Ints, steps: Nat) -> list[int]:
    """Move the first items to the end."""
    if not items:
        return []
    cut = steps % len(items)
    return items[cut:] + items[:cut]


def rotate_once(items: Ints) -> list[int]:
    """Move the last item to the front."""
    last = len(items) - 1
    if last < 1:
        return items
    return [items[last]] + items[:last]


# group: take_every
def take_every(items: Ints, step: Pos) -> list[int]:
    """Keep each item that stands on a multiple of the step."""
    result = []
    for index, item in enumerate(items):
        if index % step == 0:
            result.append(item)
    return result


def drop_every(items: Ints, step: Pos) -> list[int]:
    """Leave out each item after a full step."""
    return [items[i] for i in range(len(items)) if (i + 1) % step != 0]


# group: unique
def unique(items: Nats) -> list[int]:
    """Keep the first of equal items."""
    result: list[int] = []
    for item in items:
        if item not in result:
            result.append(item)
    return result


def squeeze(items: Nats) -> list[int]:
    """Keep one of equal neighbours."""
    result = items[:1]
    for item in items[1:]:
        if item != result[len(result) - 1]:
            result.append(item)
    return result


# group: merge
def interleave(first: Ints, second: Ints) -> list[int]:
    """Take items in turn from two lists."""
    result = []
    for index in range(max(len(first), len(second))):
        if index < len(first):
            result.append(first[index])
        if index < len(second):
            result.append(second[index])
    return result


def merge_sorted(first: Rise, second: Rise) -> list[int]:
    """Merge two sorted lists into one."""
    result = []
    i = 0
    j = 0
    while i < len(first) and j < len(second):
        if first[i] <= second[j]:
            result.append(first[i])
            i += 1
        else:
            result.append(second[j])
            j += 1
    return result + first[i:] + second[j:]


# group: set_operations
def common(first: Nats, second: Nats) -> list[int]:
    """List the items of one list that the other holds too."""
    return [item for item in first if item in second and item > 0]


def without(first: Nats, second: Nats) -> list[int]:
    """List the items of one list that the other lacks."""
    result = []
    for item in first:
        if item not in second:
            result.append(item)
    return result


# group: sorting
def bubble_sort(items: Ints) -> list[int]:
    """Sort by swapping neighbours."""
    items = list(items)
    for end in range(len(items) - 1, 0, -1):
        for i in range(end):
            if items[i] > items[i + 1]:
                items[i], items[i + 1] = items[i + 1], items[i]
    return items


def insert_sorted(items: Rise, value: int) -> list[int]:
    """Insert a value into a sorted list."""
    index = 0
    while index < len(items) and items[index] < value:
        index += 1
    return items[:index] + [value] + items[index:]


def one_pass(items: Ints) -> list[int]:
    """Carry the largest item to the end in one pass."""
    items = list(items)
    for i in range(1, len(items)):
        if items[i - 1] > items[i]:
            items[i - 1], items[i] = items[i], items[i - 1]
    return items


# group: partition
def negatives_first(items: Ints) -> list[int]:
    """Move the negative numbers to the front."""
    front = []
    back = []
    for item in items:
        if item < 0:
            front.append(item)
        else:
            back.append(item)
    return front + back


def split_at(items: Ints, pivot: int) -> list[int]:
    """Put items below the pivot before the others."""
    small = [item for item in items if item < pivot]
    large = [item for item in items if item >= pivot]
    return small + large


# group: chunks
def chunk_sums(items: Nats, size: Pos) -> list[int]:
    """Add up the items of each chunk."""
    sums = []
    for start in range(0, len(items), size):
        sums.append(sum(items[start : start + size]))
    return sums


def window_max(items: Ints) -> list[int]:
    """List the larger of each two neighbours."""
    result = []
    for index in range(len(items) - 1):
        result.append(max(items[index], items[index + 1]))
    return result


# group: pad
def pad_right(items: Nats, size: Nat) -> list[int]:
    """Add zeros until the list has a size."""
    size = min(size, 6)
    result = list(items)
    while len(result) < size:
        result.append(0)
    return result


def fit(items: Ints, size: Pos) -> list[int]:
    """Cut or repeat a list until it has a size."""
    if len(items) == 0:
        return []
    return [items[index % len(items)] for index in range(size)]


# group: countdown
def countdown(start: Nat) -> list[int]:
    """List the numbers from a start down to one."""
    result = []
    while start > 0:
        result.append(start)
        start -= 1
    return result


def steps_to(limit: Nat, step: Pos) -> list[int]:
    """List the numbers below a limit in steps from one."""
    result = []
    value = 1
    while value < limit:
        result.append(value)
        value += step
    return result


# group: repeat_items
def repeat_each(items: Nats) -> list[int]:
    """Repeat each item as often as it says, twice at most."""
    result = []
    for item in items:
        for _ in range(min(item, 2)):
            result.append(item)
    return result


def mirror(items: Ints) -> list[int]:
    """Append the items backwards without the last."""
    result = list(items)
    for index in range(len(items) - 2, -1, -1):
        result.append(items[index])
    return result


# group: swap_pairs
def swap_pairs(items: Ints) -> list[int]:
    """Swap each item at an even place with the next."""
    result = list(items)
    for i in range(0, len(items) - 1, 2):
        result[i] = items[i + 1]
        result[i + 1] = items[i]
    return result


# group: positions
def positions(items: Nats, value: Nat) -> list[int]:
    """List the places where a value stands."""
    found = []
    for index, item in enumerate(items):
        if item == value % 3:
            found.append(index)
    return found


def rank_of_each(items: Nats) -> list[int]:
    """List for each item how many items are smaller."""
    ranks = []
    for item in items:
        ranks.append(sum(1 for other in items if other < item))
    return ranks
