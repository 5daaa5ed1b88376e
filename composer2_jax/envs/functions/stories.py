"""Bank of small functions: little simulations, grids, time and geometry."""

# Agents read these sources, so they keep the plain form.
# ruff: noqa: RUF005

from composer2_jax.envs.functions.kinds import Big, Ints, Nat, Nats, Pos, Some, Word


# group: fibonacci
def fibonacci(count: Nat) -> int:
    """Return a number of the Fibonacci sequence."""
    a = 0
    b = 1
    for _ in range(count):
        a, b = b, a + b
    return a


def fibonacci_below(limit: Nat) -> list[int]:
    """List the Fibonacci numbers below a limit."""
    result = []
    a = 1
    b = 2
    while a < limit:
        result.append(a)
        a, b = b, a + b
    return result


def tribonacci(count: Nat) -> int:
    """Return a number of the sequence that adds three."""
    values = [0, 1, 1]
    while len(values) <= count:
        size = len(values)
        values.append(values[size - 1] + values[size - 2] + values[size - 3])
    return values[count]


# group: rectangle
def area(left: int, top: int, right: int, bottom: int) -> int:
    """Return the area of a box, zero if it is turned over."""
    width = right - left
    height = bottom - top
    if width < 0 or height < 0:
        return 0
    return width * height


def perimeter(width: Pos, height: Pos, gap: Nat) -> int:
    """Return the length of a fence around a box with a gate."""
    total = 2 * (width + height)
    return max(total - gap, 0)


# group: manhattan
def manhattan(x: int, y: int, a: int, b: int) -> int:
    """Return the walking distance on a grid."""
    across = abs(x - a)
    down = abs(y - b)
    return across + down


def king_moves(x: int, y: int, a: int, b: int) -> int:
    """Return how many moves a king needs."""
    return max(abs(x - a), abs(y - b))


# group: walk
def final_height(steps: Ints) -> int:
    """Walk up and down, never below the ground."""
    height = 0
    for step in steps:
        height += step
        if height < 0:
            height = 0
    return height


def ground_visits(steps: Ints) -> int:
    """Count the returns to height zero."""
    height = 0
    visits = 0
    for step in steps:
        height += step % 3 - 1
        if height == 0:
            visits += 1
    return visits


def robot(moves: Word) -> int:
    """Move right on a, left on b, and stand still on the rest."""
    place = 0
    for move in moves:
        if move == "a":
            place += 1
        elif move == "b":
            place -= 1
    return place


# group: clock
def add_minutes(hour: Nat, minutes: Big) -> int:
    """Return the hour of the day after some minutes."""
    total = hour * 60 + minutes
    return total // 60 % 24


def clock_text(minutes: Big) -> str:
    """Write minutes as hours and minutes."""
    hours = minutes // 60
    rest = minutes % 60
    if rest < 10:
        return str(hours) + ":0" + str(rest)
    return str(hours) + ":" + str(rest)


def hand_gap(hour: Nat, other: Nat) -> int:
    """Return the shorter way around the clock."""
    gap = abs(hour - other)
    return min(gap, 12 - gap)


# group: weekday
def weekday_after(day: Nat, days: Big) -> int:
    """Return the day of the week after some days."""
    day = day % 7
    return (day + days) % 7


def workdays(day: Nat, days: Nat) -> int:
    """Count the days that are not on a weekend."""
    count = 0
    for step in range(days):
        if (day + step) % 7 < 5:
            count += 1
    return count


# group: grade
def grade(points: Nat) -> str:
    """Turn points into a grade."""
    if points >= 10:
        return "A"
    if points >= 7:
        return "B"
    if points >= 4:
        return "C"
    return "D"


def passed(first: Nat, second: Nat) -> bool:
    """Whether both exams and their sum are good enough."""
    if first < 3 or second < 3:
        return False
    return first + second >= 10


# group: temperature
def to_fahrenheit(degrees: int) -> int:
    """Turn Celsius into Fahrenheit, rounded down."""
    return degrees * 9 // 5 + 32


def cold_days(degrees: Ints) -> int:
    """Count the days colder than the day before and below two."""
    count = 0
    for index in range(1, len(degrees)):
        if degrees[index] < degrees[index - 1] and degrees[index] < 2:
            count += 1
    return count


# group: water
def trapped_water(heights: Nats) -> int:
    """Add the water that stays between walls."""
    total = 0
    for index in range(1, len(heights)):
        left = max(heights[:index])
        right = max(heights[index:])
        total += max(min(left, right) - heights[index], 0)
    return total


def visible_towers(heights: Nats) -> int:
    """Count the towers that are seen from the left."""
    count = 0
    highest = 0
    for height in heights:
        if height > highest:
            count += 1
            highest = height
    return count


# group: queue_time
def waiting_time(times: Nats, place: Nat) -> int:
    """Return the time until a place of the queue is done."""
    total = 0
    for index, time in enumerate(times):
        if index <= place % 5:
            total += time
    return total


def buses_needed(groups: Nats, seats: Pos) -> int:
    """Count the buses when groups board in order."""
    buses = 0
    free = 0
    for group in groups:
        if group > free:
            buses += 1
            free = seats
        free -= min(group, free)
    return buses


# group: stack_machine
def run_stack(codes: Nats) -> int:
    """Add the top two on zero, else push the code."""
    stack = [1]
    for code in codes:
        if code == 0 and len(stack) > 1:
            stack.append(stack.pop() + stack.pop())
        else:
            stack.append(code)
    return stack[-1]


def register(codes: Nats) -> int:
    """Run a small machine with one register."""
    value = 1
    for code in codes:
        if code < 2:
            value += code + 1
        elif code < 4:
            value *= 2
        else:
            value -= 3
    return value


# group: josephus
def last_left(count: Pos, step: Pos) -> int:
    """Return who is left when every few leave the circle."""
    place = 0
    for size in range(2, count + 1):
        place = (place + step) % size
    return place + 1


# group: pascal
def pascal_row(row: Nat) -> list[int]:
    """Return a row of the triangle of sums."""
    values = [1]
    for _ in range(row % 7):
        inner = [values[i] + values[i + 1] for i in range(len(values) - 1)]
        values = [1] + inner + [1]
    return values


def choose(total: Nat, count: Nat) -> int:
    """Count the ways to choose some of a total."""
    result = 1
    for step in range(count):
        result = result * (total - step) // (step + 1)
    return result


# group: climbing
def climb_ways(steps: Nat) -> int:
    """Count the ways to climb by one or two steps."""
    one = 1
    two = 1
    for _ in range(1, steps):
        both = one + two
        two = one
        one = both
    return one


def cheapest_climb(costs: Some) -> int:
    """Return the least cost when every second stair may be skipped."""
    last = 0
    here = 0
    for cost in costs:
        step = min(last, here) + cost
        last = here
        here = step
    return min(last, here)


# group: spiral
def ring_cells(size: Nat) -> int:
    """Count the cells on the border of a square."""
    if size < 2:
        return size
    return size * size - (size - 2) * (size - 2)


def diagonal_sum(size: Nat) -> int:
    """Add the diagonal of a table of row plus twice the column."""
    total = 0
    for index in range(size):
        total += index + 2 * index + 1
    return total


# group: population
def rabbits(months: Nat) -> int:
    """Count rabbits that breed from the second month on."""
    young = 1
    old = 0
    for _ in range(months):
        born = old
        old += young
        young = born
    return young + old


def lights_on(count: Nat) -> int:
    """Count the lamps that are on after all switch rounds."""
    on = 0
    for lamp in range(1, count + 1):
        switches = sum(1 for step in range(1, lamp + 1) if lamp % step == 0)
        if switches % 2 == 1:
            on += 1
    return on
