"""Bank of small functions: accounts, prices and coins."""

from composer2_jax.envs.functions.kinds import Ints, Nat, Pos


# group: bank_account
def balance(changes: Ints) -> int:
    """Pay in and out, where overdraft costs one more."""
    money = 5
    for change in changes:
        money += change
        if money < 0:
            money -= 1
    return money


def refused(changes: Ints) -> int:
    """Count the payments that the account cannot cover."""
    money = 3
    count = 0
    for change in changes:
        if money + change < 0:
            count += 1
        else:
            money += change
    return count


# group: interest
def savings(start: Nat, years: Nat) -> int:
    """Grow savings by a tenth and one coin a year."""
    money = start * 10
    for _ in range(years):
        money += money // 10 + 1
    return money


def years_to_double(start: Pos, gain: Pos) -> int:
    """Count the years until savings are twice the start."""
    money = start
    years = 0
    while money < 2 * start:
        money += gain
        years += 1
    return years


# group: discount
def price_with_discount(price: Nat, count: Nat) -> int:
    """Return the price of some pieces, cheaper from five on."""
    total = price * count
    if count >= 5:
        total -= total // 10
    return total


def shipping(weight: Nat, express: bool) -> int:
    """Return the cost of sending a parcel."""
    cost = 3
    if weight > 5:
        cost += 2 * (weight - 5)
    if express:
        cost *= 2
    return cost


def ticket_price(age: Nat, member: bool) -> int:
    """Return the price of a ticket by age."""
    price = 10
    if age < 3:
        return 0
    if age <= 8 or member:
        price -= 4
    return price


# group: change_coins
def coin_count(amount: Nat) -> int:
    """Count the coins of five, two and one for an amount."""
    count = 0
    for coin in [5, 2, 1]:
        count += amount // coin
        amount = amount % coin
    return count


def ways_to_pay(amount: Nat) -> int:
    """Count the ways to pay with coins of one and three."""
    ways = 0
    for threes in range(amount + 1):
        if threes * 3 <= amount:
            ways += 1
    return ways
