"""The result of a run as the terminal shows it."""

from composer2_jax.evals.terminal import result_text


def test_the_result_shows_before_and_after(tmp_path):
    report = {
        "sft": {"pass_rate": 0.2, "interval": [0.15, 0.25], "best_of_4": 0.4, "turns": 8.0},
        "rl": {"pass_rate": 0.5, "interval": [0.45, 0.55], "best_of_4": 0.6, "turns": 6.0},
        "control": None,
        "total_seconds": 900.0,
        "peak_rss_bytes": 2 << 30,
        "perplexity_before": 900.0,
        "perplexity_after": 12.5,
        "mtp_acceptance": 0.61,
    }
    text = result_text(tmp_path, report)
    for words in [
        "20.0% [15.0, 25.0]",
        "50.0% [45.0, 55.0]",
        "900.00 before, 12.50 after",
        "61.0%",
        "15 min 00 s in all, 2.00 GiB",
    ]:
        assert words in text
    assert "control" not in text
