"""Bank of small functions: decimal digits, other bases and bits of integers."""

from composer2_jax.envs.functions.kinds import Big, Bits, Nat, Nats, Pos


# group: digit_sum
def digit_sum(number: Big) -> int:
    """Add the decimal digits of a number."""
    total = 0
    while number > 0:
        total += number % 10
        number = number // 10
    return total


def digit_product(number: Big) -> int:
    """Multiply the decimal digits that are not zero."""
    result = 1
    while number > 0:
        digit = number % 10
        if digit != 0:
            result *= digit
        number = number // 10
    return result


def digital_root(number: Big) -> int:
    """Add digits again and again until one is left."""
    while number > 9:
        number = number // 10 + number % 10
    return number


# group: digit_count
def digit_count(number: Big) -> int:
    """Count the decimal digits of a number."""
    count = 1
    while number >= 10:
        number = number // 10
        count += 1
    return count


def count_digit(number: Big, digit: Nat) -> int:
    """Count how often a digit occurs in a number."""
    count = 0
    while number > 0:
        if number % 10 == digit:
            count += 1
        number = number // 10
    return count


# group: digit_extremes
def largest_digit(number: Big) -> int:
    """Return the largest decimal digit."""
    best = 0
    while number > 0:
        best = max(best, number % 10)
        number = number // 10
    return best


def smallest_digit(number: Big) -> int:
    """Return the smallest decimal digit."""
    best = number % 10
    while number >= 10:
        number = number // 10
        best = min(best, number % 10)
    return best


# group: reverse_digits
def reverse_digits(number: Big) -> int:
    """Read the decimal digits backwards."""
    result = 0
    while number > 0:
        result = result * 10 + number % 10
        number = number // 10
    return result


def swap_ends(number: Big) -> int:
    """Swap the last two decimal digits."""
    last = number % 10
    tens = number // 10 % 10
    return number - last - tens * 10 + last * 10 + tens


# group: first_digit
def first_digit(number: Big) -> int:
    """Return the leading decimal digit."""
    while number > 9:
        number = number // 10
    return number


def drop_last_digits(number: Big, count: Nat) -> int:
    """Cut some decimal digits from the right."""
    for _ in range(min(count, 3)):
        number = number // 10
    return number


# group: base_conversion
def to_binary(number: Nat) -> str:
    """Write a number in base two."""
    if number == 0:
        return "0"
    bits = ""
    while number > 0:
        bits = str(number % 2) + bits
        number = number // 2
    return bits


def from_binary(bits: Bits) -> int:
    """Read a number written in base two."""
    value = 0
    for bit in bits:
        value *= 2
        if bit == "1":
            value += 1
    return value


def to_base(number: Nat, base: Pos) -> list[int]:
    """List the digits of a number in some base, lowest first."""
    base = base + 1
    digits = [number % base]
    while number >= base:
        number = number // base
        digits.append(number % base)
    return digits


# group: bit_count
def bit_count(number: Nat) -> int:
    """Count the ones in the binary form."""
    count = 0
    while number > 0:
        count += number % 2
        number = number // 2
    return count


def zero_count(bits: Bits) -> int:
    """Count the zeros after the first one."""
    started = False
    count = 0
    for bit in bits:
        if bit == "1":
            started = True
        elif started:
            count += 1
    return count


# group: bit_checks
def even_ones(bits: Bits) -> bool:
    """Whether the number of ones is even."""
    count = 0
    for bit in bits:
        if bit == "1":
            count += 1
    return count % 2 == 0


def is_power_of_two(number: Nat) -> bool:
    """Whether a number is a power of two."""
    if number < 1:
        return False
    while number % 2 == 0:
        number = number // 2
    return number == 1


# group: longest_bits
def longest_ones(bits: Bits) -> int:
    """Return the length of the longest run of ones."""
    best = 0
    run = 0
    for bit in bits:
        if bit == "1":
            run += 1
        else:
            run = 0
        best = max(best, run)
    return best


# group: checksum
def checksum(number: Big) -> int:
    """Weigh the digits by position and reduce by eleven."""
    total = 0
    weight = 2
    while number > 0:
        total += number % 10 * weight
        weight += 1
        number = number // 10
    return total % 11


def mixed_hash(values: Nats) -> int:
    """Fold a list of numbers into one below 97."""
    code = 7
    for value in values:
        code = (code * 31 + value) % 97
    return code


# group: automorphic
def ends_with_itself(number: Nat) -> bool:
    """Whether the square of a number ends with the number."""
    size = 10
    while size <= number:
        size *= 10
    return number * number % size == number


def is_harshad(number: Pos, other: Pos) -> bool:
    """Whether a two digit number is divisible by its digit sum."""
    value = number * 10 + other
    total = number + other
    return value % total == 0


# group: alternating_digits
def alternating_sum(number: Big) -> int:
    """Add and subtract the digits in turn from the right."""
    total = 0
    plus = True
    while number > 0:
        if plus:
            total += number % 10
        else:
            total -= number % 10
        plus = not plus
        number = number // 10
    return total


# group: digit_order
def digits_rise(number: Big) -> bool:
    """Whether the digits never fall from left to right."""
    last = 9
    while number > 0:
        digit = number % 10
        if digit > last:
            return False
        last = digit
        number = number // 10
    return True


def has_double_digit(number: Big) -> bool:
    """Whether two neighbouring digits are equal."""
    while number > 9:
        if number % 10 == number // 10 % 10:
            return True
        number = number // 10
    return False


# group: collatz
def collatz_steps(number: Pos) -> int:
    """Count the steps of the three n plus one walk to one."""
    count = 0
    while number != 1:
        if number % 2 == 0:
            number = number // 2
        else:
            number = number * 3 + 1
        count += 1
    return count


def collatz_peak(number: Pos) -> int:
    """Return the highest point of the three n plus one walk."""
    peak = number
    while number > 1:
        if number % 2 == 1:
            number = number * 3 + 1
        else:
            number = number // 2
        peak = max(peak, number)
    return peak
