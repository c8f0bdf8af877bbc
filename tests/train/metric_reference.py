"""Prints the numbers that metric_test.cc compares with: scikit-learn's metrics and PyTorch's losses in float64.

    python tests/train/metric_reference.py          (scikit-learn 1.x, torch 2.x)
"""
import math

import numpy as np
import torch
from sklearn import metrics


def series(shape, seed):
    """The same numbers as `series` in the test: in (-0.5, 0.5), exact in float64."""
    count = math.prod(shape)
    return np.array([((i * 37 + seed * 11 + 5) % 101) / 101 - 0.5 for i in range(count)]).reshape(shape)


def classes_of(count, classes, ignored=True):
    target = np.array([(i * 3 + i // 7) % classes for i in range(count)])
    if ignored:
        target[[i for i in range(count) if i % 11 == 3]] = -100
    return target


def classes(count, size):
    scores, target = series((count, size), 3) * 4, classes_of(count, size)
    kept = target != -100
    said, right = scores.argmax(1)[kept], target[kept]
    loss = torch.nn.functional.cross_entropy(torch.tensor(scores), torch.tensor(target)).item()
    out = {"accuracy": metrics.accuracy_score(right, said), "perplexity": math.exp(loss),
           "bits_per_byte": loss / math.log(2),
           "bits_per_byte(bytes=3.5)": loss / math.log(2) / 3.5,
           "f1(average=micro)": metrics.f1_score(right, said, average="micro"),
           "f1(average=macro)": metrics.f1_score(right, said, average="macro")}
    if size > 2:
        out["top_k(k=2)"] = metrics.top_k_accuracy_score(right, scores[kept], k=2, labels=range(size))
        out["f1"] = out["f1(average=macro)"]
    else:
        out["f1"] = metrics.f1_score(right, said)
        out["f1(positive=0)"] = metrics.f1_score(right, said, pos_label=0)
        out["auc"] = metrics.roc_auc_score(right, (scores[:, 1] - scores[:, 0])[kept])
    return out


def inner_classes():
    scores, target = series((6, 4, 5), 9), classes_of(30, 4).reshape(6, 5)
    kept = target != -100
    loss = torch.nn.functional.cross_entropy(torch.tensor(scores), torch.tensor(target)).item()
    return {"accuracy": metrics.accuracy_score(target[kept], scores.argmax(1)[kept]), "perplexity": math.exp(loss)}


def numbers(columns, offset):
    output, target = series((40, columns), 2) + offset, series((40, columns), 8) + offset
    return {"mae": metrics.mean_absolute_error(target, output), "r2": metrics.r2_score(target, output),
            "rmse": math.sqrt(torch.nn.functional.mse_loss(torch.tensor(output), torch.tensor(target)).item())}


def probabilities(columns):
    output, target = series((40, columns), 2), (series((40, columns), 8) > 0.1).astype(int)
    said = (output > 0).astype(int)
    average = {"average": "macro"} if columns > 1 else {}
    return {"accuracy": metrics.accuracy_score(target.ravel(), said.ravel()),
            "f1": metrics.f1_score(target, said, **average),
            "f1(average=micro)": metrics.f1_score(target, said, average="micro") if columns > 1
            else metrics.f1_score(target, said), "auc": metrics.roc_auc_score(target, output)}


def one_kind():
    """Every target is class 2; what is said is not."""
    scores, target = series((17, 5), 3) * 4, np.full(17, 2)
    said = scores.argmax(1)
    return {"accuracy": metrics.accuracy_score(target, said),
            "f1(average=macro)": metrics.f1_score(target, said, average="macro"),
            "f1(average=micro)": metrics.f1_score(target, said, average="micro"),
            "top_k(k=2)": metrics.top_k_accuracy_score(target, scores, k=2, labels=range(5)),
            "perplexity": math.exp(torch.nn.functional.cross_entropy(torch.tensor(scores),
                                                                     torch.tensor(target)).item())}


def tied():
    """Scores in four steps: many are equal."""
    scores, target = np.round(series((41, 2), 3) * 3), classes_of(41, 2)
    kept = target != -100
    return {"auc": metrics.roc_auc_score(target[kept], (scores[:, 1] - scores[:, 0])[kept]),
            "accuracy": metrics.accuracy_score(target[kept], scores.argmax(1)[kept]),
            "f1": metrics.f1_score(target[kept], scores.argmax(1)[kept])}


def tied_labels():
    output, target = np.round(series((41, 2), 2) * 3), (series((41, 2), 8) > 0.1).astype(int)
    return {"auc": metrics.roc_auc_score(target, output),
            "f1": metrics.f1_score(target, output > 0, average="macro", zero_division=0)}


def constant(met):
    """Targets that are all alike have no spread: as a column of zeros, of which no rounding makes one."""
    output, target = series((7, 1), 2), np.zeros((7, 1))
    return {"r2": metrics.r2_score(target, target if met else output)}


def one_of_two_constant():
    output, target = series((9, 2), 2), series((9, 2), 8)
    target[:, 1] = 0
    return {"r2": metrics.r2_score(target, output), "mae": metrics.mean_absolute_error(target, output),
            "rmse": math.sqrt(torch.nn.functional.mse_loss(torch.tensor(output), torch.tensor(target)).item())}


CASES = {"five classes": classes(40, 5), "two classes": classes(40, 2), "inner classes": inner_classes(),
         "one column": numbers(1, 0),
         "three columns": numbers(3, 0), "far from zero": numbers(1, 1e6), "label": probabilities(1),
         "labels": probabilities(3),
         "one kind": one_kind(), "tied": tied(), "tied labels": tied_labels(), "constant": constant(False),
         "constant and met": constant(True),
         "one of two constant": one_of_two_constant()}
for case, values in CASES.items():
    for name, value in values.items():
        print(f'      {{"{case}", "{name}", {float(value)!r}}},')
