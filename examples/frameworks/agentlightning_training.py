"""Train the default model on GuessTheNumber with Agent Lightning's trainer, runner, store and tracer, on a CPU."""

import argparse

import agentlightning as agl

from palestra.engines.default_model import default_model
from palestra.integrations.agentlightning import PalestraAgent, TorchAlgorithm, task_rows


def main(env: str, steps: int, tasks: int, group_size: int, learning_rate: float) -> None:
    model, tokenizer = default_model("0.3M", seed=1)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    algorithm = TorchAlgorithm(
        model, tokenizer, tasks_per_step=tasks, group_size=group_size, learning_rate=learning_rate, max_tokens=8
    )
    tracer = agl.AgentOpsTracer()  # records the requests in this process; sends nothing to AgentOps
    trainer = agl.Trainer(
        algorithm=algorithm,
        tracer=tracer,
        runner=agl.LitAgentRunner(tracer, poll_interval=0.05, interval_jitter=0.0),
        strategy=agl.SharedMemoryExecutionStrategy(main_thread="algorithm"),
    )
    trainer.fit(PalestraAgent(), train_dataset=task_rows(env, steps * tasks))
    for step, metrics in enumerate(algorithm.metrics):
        print(f"step {step}: reward {metrics['reward']:.3f}, turns {metrics['turns']:.1f}, loss {metrics['loss']:.4f}")
    change = max((value - before[name]).abs().max().item() for name, value in model.named_parameters())
    print(f"largest change of a weight: {change:.6f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="game:GuessTheNumber-v0-easy")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    main(**vars(parser.parse_args()))
