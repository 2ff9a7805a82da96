"""Questions of fact from data sets: ids are GEM's. Data only."""

from __future__ import annotations

from functools import partial

from palestra.envs.tasks.ids import data_set

qa_set = partial(data_set, "palestra.envs.qa.questions:Questions", question="problem", answer="answer")

DATA = [
    qa_set("qa:NaturalQuestions", "what people asked a search engine", dataset="axon-rl/NaturalQuestions"),
    qa_set("qa:HotpotQA", "questions over two articles", dataset="axon-rl/HotpotQA"),
    qa_set("qa:File-v0", "questions of your own: a file, a folder or any data set"),
]
