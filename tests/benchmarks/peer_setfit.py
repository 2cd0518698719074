"""SetFit on the texts of one draw, with its own defaults, for a Python that has setfit: the other side of few_labels.

    OTHER/bin/python tests/benchmarks/peer_setfit.py ENCODER_FOLDER TEXTS.json MAX_LENGTH CUT SEED

TEXTS.json has train_texts, train_labels, test_texts, test_labels. CUT, left or right, is where texts that are too long
lose their pieces. The last line printed is a JSON object.
"""

import json
import sys
import time

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer, models
from setfit import SetFitModel, Trainer, TrainingArguments
from sklearn.linear_model import LogisticRegression


def main():
    folder, texts_path, max_length, cut, seed = sys.argv[1:]
    with open(texts_path, encoding="utf-8") as file:
        texts = json.load(file)
    encoder = models.Transformer(folder, max_seq_length=int(max_length))
    encoder.tokenizer.truncation_side = cut
    body = SentenceTransformer(modules=[encoder, models.Pooling(encoder.get_word_embedding_dimension(), "mean")])
    model = SetFitModel(model_body=body, model_head=LogisticRegression())
    arguments = TrainingArguments(seed=int(seed), report_to="none", show_progress_bar=False, save_strategy="no")
    train_set = Dataset.from_dict({"text": texts["train_texts"], "label": texts["train_labels"]})
    start = time.time()
    Trainer(model=model, args=arguments, train_dataset=train_set).train()
    trained = time.time()
    predicted = np.asarray(model.predict(texts["test_texts"]))
    accuracy = float(np.mean(predicted == np.asarray(texts["test_labels"])))
    minutes = {"train_minutes": (trained - start) / 60, "test_minutes": (time.time() - trained) / 60}
    print(json.dumps({"accuracy": accuracy} | minutes))


if __name__ == "__main__":
    main()
