"""Bank of small functions: arithmetic on one, two or three integers."""

from composer2_jax.envs.functions.kinds import Nat, Pos


# group: clamp
def clamp(value: int, low: int, high: int) -> int:
    """Limit a number to a range."""
    if value < low:
        return low
    if value > high:
        return high
    return value


def clamp_low(value: int, low: int) -> int:
    """Raise a number to a floor, then keep it under twenty."""
    result = max(value, low)
    return min(result, 20 - 1)


# group: larger
def larger(a: int, b: int) -> int:
    """Return the larger of two numbers."""
    best = a
    if b > best:
        best = b
    return best


def max3(a: int, b: int, c: int) -> int:
    """Return the largest of three numbers."""
    best = a
    if b > best:
        best = b
    if c > best:
        best = c
    return best


def middle(a: int, b: int, c: int) -> int:
    """Return the middle one of three numbers."""
    low = min(a, b)
    high = max(a, b)
    return max(low, min(high, c))


# group: sign
def sign(value: int) -> int:
    """Return 1, 0 or -1 like the sign of a number."""
    if value > 0:
        return 1
    if value < 0:
        return -1
    return 0


def same_sign(a: int, b: int) -> bool:
    """Whether both numbers are positive or both negative."""
    if a > 0 and b > 0:
        return True
    return a < 0 and b < 0


# group: distance
def distance(a: int, b: int) -> int:
    """Return how far apart two numbers are."""
    if a < b:
        return b - a
    return a - b


def closer(target: int, a: int, b: int) -> int:
    """Return whichever number is nearer to the target."""
    left = abs(a - target)
    right = abs(b - target)
    if left <= right:
        return a
    return b


# group: power
def power(base: int, times: Nat) -> int:
    """Raise a number to a power by repeated products."""
    result = 1
    for _ in range(times):
        result *= base
    return result


def square_sum(a: int, b: int) -> int:
    """Return the sum of two squares."""
    first = a * a
    second = b * b
    return first + second


# group: factorial
def factorial(count: Nat) -> int:
    """Multiply the numbers from one up to a limit."""
    result = 1
    for step in range(2, count + 1):
        result *= step
    return result


def odd_factorial(count: Nat) -> int:
    """Multiply every other number down to one."""
    result = 1
    while count > 1:
        result *= count
        count -= 2
    return result


# group: triangle_number
def sum_to(limit: Nat) -> int:
    """Add the numbers from one up to a limit."""
    total = 0
    for step in range(1, limit + 1):
        total += step
    return total


def sum_between(low: int, high: int) -> int:
    """Add all numbers in a range, both ends included."""
    total = 0
    while low <= high:
        total += low
        low += 1
    return total


# group: gcd
def gcd(a: Pos, b: Pos) -> int:
    """Return the greatest common divisor."""
    while b != 0:
        rest = a % b
        a = b
        b = rest
    return a


def lcm(a: Pos, b: Pos) -> int:
    """Return the least common multiple."""
    step = max(a, b)
    value = step
    while value % a != 0 or value % b != 0:
        value += step
    return value


# group: divisors
def count_divisors(value: Nat) -> int:
    """Count the divisors of a number."""
    count = 0
    for part in range(1, value + 1):
        if value % part == 0:
            count += 1
    return count


def sum_divisors(value: Nat) -> int:
    """Add the divisors of a number below itself."""
    total = 0
    for part in range(1, value):
        if value % part == 0:
            total += part
    return total


def smallest_divisor(value: Pos) -> int:
    """Find the smallest divisor above one."""
    part = 2
    while part < value and value % part > 0:
        part += 1
    return part


# group: prime
def is_prime(value: Nat) -> bool:
    """Whether a number has no divisor but one and itself."""
    if value < 2:
        return False
    for part in range(2, value):
        if value % part == 0:
            return False
    return True


def next_prime(value: Nat) -> int:
    """Find the first prime above a number."""
    value = max(value + 1, 2)
    while any(value % part == 0 for part in range(2, value)):
        value += 1
    return value


# group: square_root
def square_root(value: Nat) -> int:
    """Return the whole part of the square root."""
    root = 0
    while (root + 1) * (root + 1) <= value:
        root += 1
    return root


def is_square(value: Nat) -> bool:
    """Whether a number is a perfect square."""
    root = 0
    while root * root < value:
        root += 1
    return root * root == value


# group: round_to
def round_up(value: Nat, step: Pos) -> int:
    """Round up to a multiple of the step."""
    rest = value % step
    if rest == 0:
        return value
    return value + step - rest


def round_down(value: int, step: Pos) -> int:
    """Round down to a multiple of the step."""
    return value // step * step + 0


def pages(items: Nat, size: Pos) -> int:
    """Count the pages that hold all items."""
    full = items // size
    if items % size > 0:
        full += 1
    return full


# group: average
def average(a: int, b: int, c: int) -> int:
    """Return the whole part of the mean of three numbers."""
    total = a + b + c
    return total // 3


def midpoint(low: int, high: int) -> int:
    """Return the point half way along a range."""
    gap = high - low
    return low + gap // 2


# group: parity
def parity(value: int) -> str:
    """Name a number even or odd."""
    if value % 2 == 0:
        return "even"
    return "odd"


def next_even(value: int) -> int:
    """Return the first even number above a number."""
    value += 1
    if value % 2 == 1:
        value += 1
    return value


# group: wrap
def wrap(value: int, size: Pos) -> int:
    """Bring a number into the range below size by whole turns."""
    while value < 0:
        value += size
    while value >= size:
        value -= size
    return value


def bounce(value: Nat, size: Pos) -> int:
    """Reflect a moving point between zero and size."""
    turn = value % (2 * size)
    if turn > size:
        turn = 2 * size - turn
    return turn


# group: multiply_by_adding
def slow_product(a: int, b: Nat) -> int:
    """Multiply by adding again and again."""
    total = 0
    while b > 0:
        total += a
        b -= 1
    return total


def slow_divide(a: Nat, b: Pos) -> int:
    """Divide by subtracting again and again."""
    count = 0
    while a >= b:
        a -= b
        count += 1
    return count


# group: polynomial
def parabola(value: int) -> int:
    """Evaluate a fixed polynomial of degree two."""
    linear = 3 * value
    return value * value - linear + 2


def line_height(start: int, slope: int, step: Nat) -> int:
    """Return the height of a line after some steps."""
    rise = slope * step
    return start + rise


# group: halving
def halvings(value: Nat) -> int:
    """Count the halvings until one is left."""
    count = 0
    while value > 1:
        value = value // 2
        count += 1
    return count


def double_until(value: Pos, limit: Nat) -> int:
    """Double a number until it reaches the limit."""
    while value < limit:
        value *= 2
    return value
