"""Bank of small functions: finding an item, a place or a best value in a list."""

from composer2_jax.envs.functions.kinds import Ints, Nat, Nats, Rise, Some


# group: find_index
def first_index(items: Nats, value: Nat) -> int:
    """Find the first place of a value, or -1."""
    for index in range(len(items)):
        if items[index] == value % 4:
            return index
    return -1


def last_index(items: Nats, value: Nat) -> int:
    """Find the last place of a value, or -1."""
    found = -1
    for index, item in enumerate(items):
        if item == value % 4:
            found = index
    return found


# group: first_match
def first_above(items: Ints, limit: int) -> int:
    """Return the first item above a limit, or zero."""
    for item in items:
        if item > limit:
            return item
    return 0


def last_negative(items: Ints) -> int:
    """Return the last negative item, or one."""
    found = 1
    for item in items:
        if item < 0:
            found = item
    return found


# group: extreme_value
def largest(items: Some) -> int:
    """Return the largest item of a list."""
    best = items[0]
    for item in items:
        if item > best:
            best = item
    return best


def smallest(items: Some) -> int:
    """Return the smallest item of a list."""
    best = items[0]
    for index in range(1, len(items)):
        best = min(best, items[index])
    return best


def second_largest(items: Some) -> int:
    """Return the second largest item, or -9."""
    first = -9
    second = -9
    for item in items:
        if item > first:
            second = first
            first = item
        elif item > second:
            second = item
    return second


# group: extreme_place
def place_of_largest(items: Some) -> int:
    """Find the first place of the largest item."""
    best = 0
    for index in range(len(items)):
        if items[index] > items[best]:
            best = index
    return best


def place_of_smallest(items: Some) -> int:
    """Find the last place of the smallest item."""
    place = 0
    for index, item in enumerate(items):
        if item <= items[place]:
            place = index
    return place


# group: binary_search
def binary_search(items: Rise, value: int) -> int:
    """Find the first place not below a value in a sorted list."""
    low = 0
    high = len(items)
    while low < high:
        middle = (low + high) // 2
        if items[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def sorted_contains(items: Rise, value: int) -> bool:
    """Whether a sorted list holds a value."""
    low = 0
    high = len(items) - 1
    while low <= high:
        middle = (low + high) // 2
        if items[middle] == value:
            return True
        if items[middle] < value:
            low = middle + 1
        else:
            high = middle - 1
    return False


# group: nearest
def nearest(items: Some, target: int) -> int:
    """Return the item nearest to a target."""
    best = items[0]
    for item in items:
        if abs(item - target) < abs(best - target):
            best = item
    return best


def smallest_gap(items: Rise) -> int:
    """Return the smallest step of a sorted list, or ten."""
    best = 10
    for index in range(len(items) - 1):
        gap = items[index + 1] - items[index]
        if gap < best:
            best = gap
    return best


# group: missing
def first_missing(items: Nats) -> int:
    """Find the smallest number from zero that is not in a list."""
    value = 0
    while value in items:
        value += 1
    return value


def lone_item(items: Nats) -> int:
    """Return the first item that occurs once, or -1."""
    for item in items:
        if items.count(item) == 1:
            return item
    return -1


# group: most_common
def most_common(items: Nats) -> int:
    """Return the item that occurs most, or -1."""
    best = -1
    most = 0
    for item in items:
        count = items.count(item)
        if count > most:
            best = item
            most = count
    return best


def majority(items: Nats) -> bool:
    """Whether one item fills more than half of a list."""
    for item in items:
        if items.count(item) * 2 > len(items):
            return True
    return False


# group: best_sum
def best_run_sum(items: Ints) -> int:
    """Return the largest sum of neighbouring items, or zero."""
    best = 0
    run = 0
    for item in items:
        run = max(run + item, 0)
        best = max(best, run)
    return best


def best_pair_sum(items: Ints) -> int:
    """Return the largest sum of two neighbours, or zero."""
    best = 0
    for index in range(1, len(items)):
        pair = items[index - 1] + items[index]
        if pair > best:
            best = pair
    return best


# group: best_profit
def best_profit(prices: Nats) -> int:
    """Return the best gain from buying first and selling later."""
    if not prices:
        return 0
    low = prices[0]
    best = 0
    for price in prices:
        low = min(low, price)
        best = max(best, price - low)
    return best


def largest_drop(prices: Nats) -> int:
    """Return the largest loss from one item to the next."""
    worst = 0
    for index in range(len(prices) - 1):
        drop = prices[index] - prices[index + 1]
        worst = max(worst, drop)
    return worst


# group: longest_run
def longest_run(items: Nats) -> int:
    """Return the length of the longest run of equal items."""
    best = 0
    run = 0
    last = -1
    for item in items:
        run = run + 1 if item == last else 1
        last = item
        if run > best:
            best = run
    return best


def longest_rise(items: Ints) -> int:
    """Return the length of the longest rising stretch."""
    if not items:
        return 0
    best = 1
    run = 1
    for index in range(1, len(items)):
        if items[index] > items[index - 1]:
            run += 1
        else:
            run = 1
        best = max(best, run)
    return best


# group: balance_point
def balance_point(items: Nats) -> int:
    """Find the first cut with equal sums on both sides, or -1."""
    left = 0
    right = sum(items)
    for index, item in enumerate(items):
        if left == right:
            return index
        left += item
        right -= item
    return -1


def half_point(items: Nats) -> int:
    """Find the place where half of the sum is reached."""
    total = sum(items)
    part = 0
    for index, item in enumerate(items):
        part += item
        if part * 2 >= total:
            return index
    return 0


# group: two_sum
def has_pair_sum(items: Ints, target: int) -> bool:
    """Whether two different places add up to a target."""
    for i in range(len(items)):
        for j in range(i + 1, len(items)):
            if items[i] + items[j] == target:
                return True
    return False


def closest_pair(items: Ints) -> int:
    """Return the smallest difference of two items, or 20."""
    best = 20
    for i in range(len(items)):
        for j in range(i):
            best = min(best, abs(items[i] - items[j]))
    return best


# group: middle_item
def middle_item(items: Some) -> int:
    """Return the item in the middle, the left one of two."""
    index = (len(items) - 1) // 2
    return items[index]


def median(items: Some) -> int:
    """Return the median, rounded down between two items."""
    ordered = sorted(items)
    half = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[half]
    return (ordered[half - 1] + ordered[half]) // 2


# group: from_end
def item_from_end(items: Some, steps: Nat) -> int:
    """Return the item some steps before the last, or the first."""
    index = len(items) - 1 - steps
    if index < 0:
        index = 0
    return items[index]


def last_or(items: Ints, default: int) -> int:
    """Return the last item, or a default below ten."""
    if len(items) > 0:
        return items[len(items) - 1]
    return min(default, 9)


# group: kth
def kth_smallest(items: Some, rank: Nat) -> int:
    """Return the item of a rank in order, counted from one."""
    rank = max(1, min(rank, len(items)))
    ordered = sorted(items)
    return ordered[rank - 1]
