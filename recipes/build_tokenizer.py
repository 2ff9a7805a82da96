"""Train the default model's tokenizer on texts from the games and write palestra/engines/data/tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import palestra
from palestra.envs.games.words import common

VOCABULARY = 1024
TARGET = Path(palestra.__file__).parent / "engines" / "data" / "tokenizer.json"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WHOLE = ["\\boxed{", "<think>", "</think>", "<tool_call>", "</tool_call>", "<answer>", "</answer>"]
ROLES = ["system", "user", "assistant", "tool"]  # role names in the chat template
PIECES = r"[0-9]{1,2}| ?\p{L}+| ?[^\s\p{L}0-9]|\s+"  # splits numbers from spaces, so that 7 always has the same token


def texts() -> Iterator[str]:
    for env_id in palestra.list_envs("game"):
        env = palestra.make(env_id)
        for seed in range(12):
            yield str(env.reset(seed=seed)[0])
            for _ in range(12):
                action = env.sample_random_action()
                yield action
                step = env.step(action)
                yield str(step.observation)
                if step.done:
                    break
    for number in range(100):
        for _ in range(500):
            yield str(number)
    for length in range(3, 8):
        yield " ".join(common(length))


def main() -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(WHOLE) - len(ROLES),
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in WHOLE])
    tokenizer.add_tokens([AddedToken(text, normalized=False, single_word=True) for text in ROLES])
    TARGET.parent.mkdir(exist_ok=True)
    tokenizer.save(str(TARGET), pretty=False)
    missing = [n for n in range(100) if len(tokenizer.encode(str(n)).ids) != 1]
    print(f"{TARGET}: {tokenizer.get_vocab_size()} tokens; numbers without a single token: {missing or 'none'}")


if __name__ == "__main__":
    main()
