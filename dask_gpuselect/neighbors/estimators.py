"""Nearest neighbours, regression and classification as estimators of scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from dask_gpuselect.arguments import public
from dask_gpuselect.arrays import FILL_ROWS, check_not_masked, gpu_of, is_array, to_host
from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.expressions import as_source
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.nearest import Weights, check_length, majority, means, shares
from dask_gpuselect.neighbors.functions import as_k, as_rows, check_features
from dask_gpuselect.neighbors.search import Answer, Search, answers, check_k
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.quiet import outside

FLOAT = np.dtype(np.float64)


# scikit-learn has its own `repr` and compares estimators by identity.
with_parameters = dataclass(repr=False, eq=False)


@with_parameters
class _Neighbors(BaseEstimator):  # type: ignore[misc]
    """Base of all estimators: the fitted rows, and the search among them."""

    n_neighbors: int = 5
    metric: str = field(default="euclidean", kw_only=True)

    @public("X")
    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Find the fitted rows that are nearest to each query.

        Parameters
        ----------
        X : dask array or array_like, shape (n_queries, n_features), optional
            The queries. By default these are the fitted rows, and no row counts as its own
            neighbour. The fitted rows are then read twice, and are in memory in one piece, as
            float64.
        n_neighbors : int, optional
            The number of neighbours of each query. By default that of the estimator.
        return_distance : bool, default True
            Whether to return the distances too.

        Returns
        -------
        distances : array, shape (n_queries, n_neighbors)
            float64, ascending along each row. Returned only if `return_distance` is True. A lazy
            dask array if the queries or the fitted rows are one.
        indices : array, shape (n_queries, n_neighbors)
            int64. The numbers of the nearest rows. Lazy in the same cases.

        Raises
        ------
        TypeError, ValueError
            In the same cases as for the function `kneighbors`.
        sklearn.exceptions.NotFittedError
            If `fit` has not been called.
        """
        check_is_fitted(self)
        k = as_k(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        search, indices = self._search(X, k), Answer.indices(k)
        if not return_distance:
            return answers(search, [indices])[0]
        return tuple(answers(search, [Answer.distances(k), indices]))

    def _search(self, X: Any, k: int) -> Search:
        """Return the search for the nearest rows of some queries."""
        rows = as_source(self._fit_X)
        if X is None:
            check_k(k, rows.shape[0])
            return Search(rows, rows, k, leave_out=True)
        queries = self._as_rows(X, reset=False)
        check_features(rows, queries)
        check_k(k, rows.shape[0], queries.shape[0])
        return Search(rows, queries, k)

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        """Return rows as the search takes them, and set or check the number of features.

        Plain arrays on the host are checked by scikit-learn.
        """
        if not isinstance(X, DaskArray) and gpu_of(X) is None:
            check_not_masked(X, FILL_ROWS)
            X = validate_data(self, X, reset=reset, order="C", dtype="numeric")
            return as_rows(X, "X")
        X = as_rows(X, "X")
        return validate_data(self, X, reset=reset, skip_check_array=True)

    def _fit_rows(self, X: Any) -> None:
        """Store the fitted rows, and check the parameters."""
        if self.metric != "euclidean":
            raise ValueError(f"metric must be 'euclidean', not {self.metric!r}")
        as_k(self.n_neighbors, "n_neighbors")
        self._fit_X = self._as_rows(X, reset=True)
        self.n_samples_fit_ = self._fit_X.shape[0]
        self.effective_metric_ = self.metric


class NearestNeighbors(_Neighbors):
    """Exact nearest neighbours by brute force, for rows in chunks, reading each chunk once.

    Parameters
    ----------
    n_neighbors : int, default 5
        The number of neighbours of each query.
    metric : str, default "euclidean"
        Only "euclidean" is supported.

    Attributes
    ----------
    n_features_in_ : int
        The number of features of the fitted rows.
    feature_names_in_ : ndarray of str
        The names of the features. Set only if the fitted rows have names, as a data frame has.
    n_samples_fit_ : int
        The number of fitted rows. NaN if the sizes of the chunks are unknown.
    effective_metric_ : str
        The metric in use.

    See Also
    --------
    dask_gpuselect.neighbors.kneighbors : Exactness, reads and memory of the search.

    Notes
    -----
    `fit` computes nothing. A dask array stays lazy, and each search reads every chunk of it once.
    Answers are lazy dask arrays if the fitted rows or the queries are.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.neighbors import NearestNeighbors
    >>> x = da.arange(12, chunks=4).reshape(-1, 1) ** 2
    >>> NearestNeighbors(n_neighbors=2).fit(x).kneighbors([[50]], return_distance=False).compute()
    array([[7, 6]])
    """

    @public("X", "y")
    def fit(self, X: Any, y: Any = None) -> Self:
        """Store the rows that are searched.

        Parameters
        ----------
        X : dask array or array_like, shape (n, n_features)
            Rows as for the function `kneighbors`. A dask array stays lazy.
        y : ignored
            Present for scikit-learn's conventions.

        Returns
        -------
        NearestNeighbors
            The fitted estimator.

        Raises
        ------
        TypeError, ValueError
            If the rows are not real numbers, if `metric` is not supported, or if `n_neighbors` is
            not an integer of at least 1.
        """
        self._fit_rows(X)
        return self


@with_parameters
class _Supervised(_Neighbors):
    """Base of regression and classification: the targets of the fitted rows."""

    weights: Weights = field(default="uniform", kw_only=True)

    @public("X", "y")
    def fit(self, X: Any, y: Any) -> Self:
        """Store the rows and their targets.

        Parameters
        ----------
        X : dask array or array_like, shape (n, n_features)
            Rows as for the function `kneighbors`. A dask array stays lazy.
        y : dask array or array_like, shape (n,) or (n, n_outputs)
            The target of each row: finite numbers for regression, classes that can be sorted for
            classification. A dask array is computed, and stays in memory.

        Returns
        -------
        KNeighborsRegressor or KNeighborsClassifier
            The fitted estimator.

        Raises
        ------
        TypeError, ValueError
            If the rows are not real numbers, if `y` does not have one target for each row, if the
            targets are not numbers or classes, if `weights` or `metric` is not supported, or if
            `n_neighbors` is not an integer of at least 1.
        """
        weights = self.weights
        if not (callable(weights) or weights in (None, "uniform", "distance")):
            raise ValueError(
                f"weights must be 'uniform', 'distance', None or a callable, not {weights!r}"
            )
        self._fit_rows(X)
        self._y = self._learn(y)
        return self

    def _learn(self, y: Any) -> NDArray[Any]:
        """Return the targets as they are stored."""
        raise NotImplementedError

    def _answers(self, X: Any, wanted: list[Answer]) -> list[Any]:
        """Return answers made of the nearest rows of some queries and their targets."""
        search = self._search(X, as_k(self.n_neighbors, "n_neighbors"))
        return answers(search, wanted, self._y)

    def _targets(self, y: Any, **how: Any) -> NDArray[Any]:
        """Return the targets in memory, checked by scikit-learn."""
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, "
                "but the target y is None."
            )
        check_not_masked(getattr(y, "_meta", y), FILL_ROWS)
        if isinstance(y, DaskArray):
            with outside():
                checked: DaskArray = entered(y, "y", FILL_ROWS)
                y = checked.compute()
        y = to_host(y) if is_array(y) else y
        targets: NDArray[Any] = check_array(y, ensure_2d=False, input_name="y", **how)
        check_length(targets, self._fit_X.shape[0])
        return targets

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@documented_like(NearestNeighbors)
class KNeighborsRegressor(RegressorMixin, _Supervised):  # type: ignore[misc]
    """Regression by the weighted mean of the targets of the nearest rows.

    Parameters
    ----------
    n_neighbors : int, default 5
        The number of rows that are averaged for each query.
    {metric}
    weights : {"uniform", "distance"}, callable or None, default "uniform"
        The weight of each neighbour. "uniform" or None: all weigh the same. "distance": the inverse
        of the distance. Neighbours at distance 0 then weigh the same, and all others nothing. A
        callable gets the distances, of shape (n_queries, n_neighbors), and returns weights of the
        same shape.

    {Attributes}

    See Also
    --------
    dask_gpuselect.neighbors.kneighbors : Exactness, reads and memory of the search.

    Notes
    -----
    Each prediction reads every chunk of the fitted rows once. The targets are in memory.

    References
    ----------
    G. Beliakov, "Parallel calculation of the median and order statistics on GPUs with application
    to robust regression", 2011, section VI.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.neighbors import KNeighborsRegressor
    >>> x = da.arange(12, chunks=4).reshape(-1, 1)
    >>> model = KNeighborsRegressor(n_neighbors=2, weights="distance").fit(x, [0.0, 4.0] * 6)
    >>> model.predict([[3.25], [6]]).compute()
    array([3., 0.])
    """

    def _learn(self, y: Any) -> NDArray[Any]:
        return self._targets(y, dtype="numeric")

    @documented_like(_Neighbors.kneighbors)
    @public("X")
    def predict(self, X: Any) -> Any:
        """Predict the target of each query: the weighted mean of its nearest rows.

        Parameters
        ----------
        X : dask array or array_like, shape (n_queries, n_features)
            The queries.

        Returns
        -------
        array, shape (n_queries,) or (n_queries, n_outputs)
            The dtype of the targets if these are floating-point numbers and all neighbours weigh
            the same. Otherwise float64. A lazy dask array if the queries or the fitted rows are
            one.

        {Raises}
        """
        check_is_fitted(self)
        y = self._y
        # NumPy's mean keeps the dtype of floats; weighted means are quotients of float64 sums.
        is_mean = self.weights in (None, "uniform") and y.dtype.kind == "f"
        dtype = y.dtype if is_mean else FLOAT
        answer = Answer(partial(means, weights=self.weights), dtype, y.shape[1:])
        return self._answers(X, [answer])[0]


@documented_like(KNeighborsRegressor)
class KNeighborsClassifier(ClassifierMixin, _Supervised):  # type: ignore[misc]
    """Classification by the weighted vote of the nearest rows.

    Parameters
    ----------
    n_neighbors : int, default 5
        The number of rows that vote for each query.
    {metric}
    weights : {"uniform", "distance"}, callable or None, default "uniform"
        The weight of each vote, as in `KNeighborsRegressor`.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,), or list of ndarray
        The classes in ascending order. A list, one array for each output, if there are several.
    outputs_2d_ : bool
        Whether `y` has more than one output.
    {n_features_in_}
    {feature_names_in_}
    {n_samples_fit_}
    {effective_metric_}

    See Also
    --------
    dask_gpuselect.neighbors.kneighbors : Exactness, reads and memory of the search.

    Notes
    -----
    If several classes have the most votes, the first of them in `classes_` is predicted.

    Each prediction reads every chunk of the fitted rows once. The classes are in memory.

    {References}

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_gpuselect.neighbors import KNeighborsClassifier
    >>> x = da.arange(12, chunks=4).reshape(-1, 1)
    >>> model = KNeighborsClassifier(n_neighbors=3).fit(x, ["low"] * 6 + ["high"] * 6)
    >>> model.predict([[2], [5.6]]).compute()
    array(['low', 'high'], dtype='<U4')
    >>> model.predict_proba([[5.6]]).compute()
    array([[0.66666667, 0.33333333]])
    """

    def _learn(self, y: Any) -> NDArray[Any]:
        labels = self._targets(y, dtype=None)
        self.outputs_2d_ = labels.ndim == 2 and labels.shape[1] > 1
        if not self.outputs_2d_:
            labels = column_or_1d(labels, warn=True)
        check_classification_targets(labels)
        columns = labels.T if self.outputs_2d_ else [labels]
        coded = [np.unique(column, return_inverse=True) for column in columns]
        classes = [names for names, _ in coded]
        self.classes_ = classes if self.outputs_2d_ else classes[0]
        return np.stack([numbers for _, numbers in coded], axis=1)

    @public("X")
    def predict(self, X: Any) -> Any:
        """Predict the class of each query.

        Parameters
        ----------
        X : dask array or array_like, shape (n_queries, n_features)
            The queries.

        Returns
        -------
        array, shape (n_queries,) or (n_queries, n_outputs)
            The dtype of the classes. A lazy dask array if the queries or the fitted rows are one.
            Classes that are not numbers are returned as NumPy arrays, also for CuPy queries.

        Raises
        ------
        TypeError, ValueError
            In the same cases as for the function `kneighbors`. While computing, also ValueError if
            all neighbours of a query have weight 0.
        sklearn.exceptions.NotFittedError
            If `fit` has not been called.
        """
        check_is_fitted(self)
        classes = self._class_list
        vote = partial(majority, classes=tuple(classes), weights=self.weights)
        per_query = (len(classes),) if self.outputs_2d_ else ()
        return self._answers(X, [Answer(vote, np.result_type(*classes), per_query)])[0]

    @public("X")
    def predict_proba(self, X: Any) -> Any:
        """Predict the probability of each class for each query: its share of the votes.

        Parameters
        ----------
        X : dask array or array_like, shape (n_queries, n_features)
            The queries.

        Returns
        -------
        array of float64, shape (n_queries, n_classes), or list of these
            The columns follow `classes_`. A list, one array for each output, if there are several.
            Lazy dask arrays if the queries or the fitted rows are.

        Raises
        ------
        TypeError, ValueError
            In the same cases as for `predict`.
        sklearn.exceptions.NotFittedError
            If `fit` has not been called.
        """
        check_is_fitted(self)
        wanted = []
        for i, classes in enumerate(self._class_list):
            size = len(classes)
            share = partial(shares, output=i, n_classes=size, weights=self.weights)
            wanted.append(Answer(share, FLOAT, (size,)))
        probabilities = self._answers(X, wanted)
        return probabilities if self.outputs_2d_ else probabilities[0]

    @property
    def _class_list(self) -> list[NDArray[Any]]:
        """The classes of each output."""
        classes: Any = self.classes_
        return list(classes) if self.outputs_2d_ else [classes]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
