"""Serve environments from one process and play them from another, with many episodes at the same time.

    python examples/remote_environments.py [ENVIRONMENTS]

`palestra serve game: --host 0.0.0.0` does the same in a shell; set PALESTRA_TOKEN on both sides then.
"""

import sys

import palestra
from palestra.server import running

if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    with (
        running("game:") as url,
        palestra.make_vec(f"{url}/game:GuessTheNumber-v0-easy", num_envs=count) as vec,
    ):
        vec.reset(seed=1)
        finished = solved = 0
        for guess in (5, 8, 2, 1, 3, 4, 6, 7, 9, 10):
            step = vec.step([rf"\boxed{{{guess}}}"] * count)
            for info in step.infos:  # when an episode ends, the next one starts, and `final_info` describes the end
                finished += "final_info" in info
                solved += bool(info.get("final_info", {}).get("success"))
        print(f"{finished} episodes finished on {url}, {solved} of them solved")
