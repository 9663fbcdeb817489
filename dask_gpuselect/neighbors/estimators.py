"""scikit-learn's estimators over `kneighbors`: nearest neighbours, regression, classification."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from dask_gpuselect.arguments import public
from dask_gpuselect.arrays import FILL_ROWS, check_not_masked, is_cupy, to_host
from dask_gpuselect.engine.door import entered
from dask_gpuselect.engine.expressions import as_source
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.nearest import Weights, check_length, majority, means, shares
from dask_gpuselect.neighbors import graph
from dask_gpuselect.neighbors.functions import as_k, as_rows, check_features
from dask_gpuselect.quantiles.documentation import documented_like
from dask_gpuselect.quiet import outside

FLOAT, INT = np.dtype(np.float64), np.dtype(np.int64)


class _Neighbors(BaseEstimator):  # type: ignore[misc]
    """The part that all estimators share: the fitted rows, and the search among them."""

    n_neighbors: int
    metric: str

    @public("X")
    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Nearest fitted rows of some queries.

        Parameters
        ----------
        X : dask array or array_like, shape (n_queries, n_features), optional
            The queries. By default the fitted rows, of which none is its own neighbour; they are
            then read twice, and held as float64 in one piece.
        n_neighbors : int, optional
            By default that of the estimator.
        return_distance : bool, default True

        Returns
        -------
        distances : array, shape (n_queries, n_neighbors)
            float64, ascending. Only if asked for. A lazy dask array if the queries or the fitted
            rows are.
        indices : array, shape (n_queries, n_neighbors)
            int64: the numbers of the rows.

        Raises
        ------
        TypeError, ValueError
            As of the function `kneighbors`.
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        k = as_k(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        indices = graph.Answer(graph.indices_of, INT, (k,))
        if not return_distance:
            return self._search(X, k).answers([indices])[0]
        return tuple(
            self._search(X, k).answers([graph.Answer(graph.distances_of, FLOAT, (k,)), indices])
        )

    def _search(self, X: Any, k: int) -> graph.NeighborSearch:
        rows = as_source(self._fit_X)
        if X is None:
            graph.check_k_of_others(k, rows.shape[0])
            return graph.NeighborSearch(rows, rows, k, leave_out=True)
        queries = self._as_rows(X, reset=False)
        check_features(rows, queries)
        graph.check_k(k, rows.shape[0], queries.shape[0])
        return graph.NeighborSearch(rows, queries, k)

    def _as_rows(self, X: Any, *, reset: bool) -> Any:
        """Rows as the search takes them; the number of features is set or checked.

        What is neither dask's nor of a device is checked as scikit-learn does it.
        """
        if not isinstance(X, DaskArray) and not is_cupy(X):
            check_not_masked(X, FILL_ROWS)
            X = validate_data(self, X, reset=reset, order="C", dtype="numeric")
            return as_rows(X, "X")
        X = as_rows(X, "X")
        return validate_data(self, X, reset=reset, skip_check_array=True)

    def _fit_rows(self, X: Any) -> None:
        if self.metric != "euclidean":
            raise ValueError(f"metric is {self.metric!r}, and only 'euclidean' is known")
        as_k(self.n_neighbors, "n_neighbors")
        self._fit_X = self._as_rows(X, reset=True)
        self.n_samples_fit_ = self._fit_X.shape[0]
        self.effective_metric_ = self.metric


class NearestNeighbors(_Neighbors):
    """Exact nearest neighbours by brute force, for rows in chunks, reading each chunk once.

    Parameters
    ----------
    n_neighbors : int, default 5
        How many of each query are wanted.
    metric : str, default "euclidean"
        Nothing else is known.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : array of str
        If the fitted rows have names for their features.
    n_samples_fit_ : int
        Of the fitted rows; NaN if chunk sizes are not known.
    effective_metric_ : str

    See Also
    --------
    dask_gpuselect.neighbors.kneighbors : what is exact, and what it takes.

    Notes
    -----
    The fitted rows are kept as they are: a dask array stays lazy, and each search among them is one
    load. Answers are lazy dask arrays if the rows or the queries are.

    Examples
    --------
    >>> import dask.array as da
    >>> x = da.arange(12, chunks=4).reshape(-1, 1) ** 2
    >>> NearestNeighbors(n_neighbors=2).fit(x).kneighbors([[50]], return_distance=False).compute()
    array([[7, 6]])
    """

    def __init__(self, n_neighbors: int = 5, *, metric: str = "euclidean") -> None:
        self.n_neighbors = n_neighbors
        self.metric = metric

    @public("X", "y")
    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep the rows among which neighbours are searched.

        Parameters
        ----------
        X : dask array or array_like, shape (n, n_features)
            As of the function `kneighbors`.
        y : ignored

        Returns
        -------
        NearestNeighbors
            This one.

        Raises
        ------
        TypeError, ValueError
            For rows that are no real numbers, a metric that is not known, or a number of neighbours
            below 1.
        """
        self._fit_rows(X)
        return self


class _Supervised(_Neighbors):
    """The part that regression and classification share: what is known of the fitted rows."""

    def __init__(
        self, n_neighbors: int = 5, *, weights: Weights = "uniform", metric: str = "euclidean"
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.metric = metric

    @public("X", "y")
    def fit(self, X: Any, y: Any) -> Self:
        """Keep the rows, and what is known of them.

        Parameters
        ----------
        X : dask array or array_like, shape (n, n_features)
            As of the function `kneighbors`.
        y : dask array or array_like, shape (n,) or (n, n_outputs)
            Finite numbers for regression; for classification anything that can be sorted. A dask
            array is computed.

        Returns
        -------
        KNeighborsRegressor or KNeighborsClassifier
            This one.

        Raises
        ------
        TypeError, ValueError
            For rows that are no real numbers or not as many as `y` has, for a `y` that is no
            numbers or no classes, for weights or a metric that are not known, or a number of
            neighbours below 1.
        """
        weights = self.weights
        if not (callable(weights) or weights in (None, "uniform", "distance")):
            raise ValueError(
                f"weights is {weights!r}, and must be 'uniform', 'distance', None or a function"
            )
        self._fit_rows(X)
        self._y = self._learn(y)
        return self

    def _learn(self, y: Any) -> NDArray[Any]:
        """What is kept of `y`."""
        raise NotImplementedError

    def _answers(self, X: Any, wanted: list[graph.Answer]) -> list[Any]:
        """What the nearest rows of some queries answer, by what is known of the rows."""
        return self._search(X, as_k(self.n_neighbors, "n_neighbors")).answers(wanted, self._y)

    def _targets(self, y: Any, **how: Any) -> NDArray[Any]:
        """What is known of the fitted rows, in memory, checked as scikit-learn does it."""
        if y is None:
            raise ValueError(
                f"This {type(self).__name__} estimator requires y to be passed, "
                "but the target y is None."
            )
        check_not_masked(getattr(y, "_meta", y), FILL_ROWS)
        if isinstance(y, DaskArray):
            with outside():
                y = entered(y, "y", FILL_ROWS).compute()
        if is_cupy(y):
            y = to_host(y)
        found: NDArray[Any] = check_array(y, ensure_2d=False, input_name="y", **how)
        check_length(found, self._fit_X.shape[0])
        return found

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
        How many rows of each query count.
    weights : {"uniform", "distance"}, callable or None, default "uniform"
        What each counts: the same, the inverse of its distance, or what a function makes of the
        distances, ``(n_queries, n_neighbors) -> (n_queries, n_neighbors)``. By "distance", where
        some neighbours are at distance 0, these count the same and others nothing.
    {metric}

    {Attributes}

    See Also
    --------
    dask_gpuselect.neighbors.kneighbors : what is exact, and what it takes.

    Notes
    -----
    Loads: one of the fitted rows for each prediction. The values `y` are held in memory.

    References
    ----------
    G. Beliakov, "Parallel calculation of the median and order statistics on GPUs with application
    to robust regression", 2011, section VI.

    Examples
    --------
    >>> import dask.array as da
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

        Returns
        -------
        array, shape (n_queries,) or (n_queries, n_outputs)
            Floating. A lazy dask array if the queries or the fitted rows are.

        {Raises}
        """
        check_is_fitted(self)
        y = self._y
        # As NumPy's mean, and as a quotient of sums of float64.
        is_mean = self.weights in (None, "uniform") and y.dtype.kind == "f"
        dtype = y.dtype if is_mean else FLOAT
        answer = graph.Answer(partial(means, weights=self.weights), dtype, y.shape[1:])
        return self._answers(X, [answer])[0]


@documented_like(KNeighborsRegressor)
class KNeighborsClassifier(ClassifierMixin, _Supervised):  # type: ignore[misc]
    """Classification by the weighted vote of the nearest rows.

    Parameters
    ----------
    n_neighbors : int, default 5
        How many rows of each query vote.
    weights : {"uniform", "distance"}, callable or None, default "uniform"
        What each counts; see `KNeighborsRegressor`.
    {metric}

    Attributes
    ----------
    classes_ : array, shape (n_classes,), or list of these
        In ascending order; a list if there are several outputs.
    outputs_2d_ : bool
        Whether `y` had two dimensions.
    {n_features_in_}
    {n_samples_fit_}
    effective_metric_ : str

    See Also
    --------
    dask_gpuselect.neighbors.kneighbors : what is exact, and what it takes.

    Notes
    -----
    Loads: one of the fitted rows for each prediction. The classes `y` are held in memory. Of
    classes with equal votes the first of `classes_` is the answer.

    {References}

    Examples
    --------
    >>> import dask.array as da
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
        classes = [found for found, _ in coded]
        self.classes_ = classes if self.outputs_2d_ else classes[0]
        return np.stack([numbers for _, numbers in coded], axis=1)

    @public("X")
    def predict(self, X: Any) -> Any:
        """Predict the class of each query.

        Parameters
        ----------
        X : dask array or array_like, shape (n_queries, n_features)

        Returns
        -------
        array, shape (n_queries,) or (n_queries, n_outputs)
            Of the type of the classes; a NumPy array also of CuPy queries if they are no numbers. A
            lazy dask array if the queries or the fitted rows are.

        Raises
        ------
        TypeError, ValueError
            As of the function `kneighbors`; ValueError while computing if all neighbours of a query
            count nothing.
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        classes = self._class_list
        vote = partial(majority, classes=tuple(classes), weights=self.weights)
        per_query = (len(classes),) if self.outputs_2d_ else ()
        return self._answers(X, [graph.Answer(vote, np.result_type(*classes), per_query)])[0]

    @public("X")
    def predict_proba(self, X: Any) -> Any:
        """Predict the probability of each class for each query: its share of the votes.

        Parameters
        ----------
        X : dask array or array_like, shape (n_queries, n_features)

        Returns
        -------
        float64 array, shape (n_queries, n_classes), or list of these
            In the order of `classes_`; a list if there are several outputs. Lazy dask arrays if the
            queries or the fitted rows are.

        Raises
        ------
        TypeError, ValueError
            As of `predict`.
        sklearn.exceptions.NotFittedError
            Before `fit`.
        """
        check_is_fitted(self)
        wanted = []
        for i, classes in enumerate(self._class_list):
            size = len(classes)
            share = partial(shares, output=i, n_classes=size, weights=self.weights)
            wanted.append(graph.Answer(share, FLOAT, (size,)))
        found = self._answers(X, wanted)
        return found if self.outputs_2d_ else found[0]

    @property
    def _class_list(self) -> list[NDArray[Any]]:
        found: Any = self.classes_
        return list(found) if self.outputs_2d_ else [found]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
