"""PMTrans (Zhu, Bai, Wang: Patch-Mix Transformer for Unsupervised Domain Adaptation, CVPR 2023).

Three players on one objective J = L_cls + alpha (L_f + L_l): feature extractor F and classifier C descend, the Beta
of PatchMix (P) ascends. Shapes: B pairs, N patches, D token width, F feature width, K classes, M target images.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pmtrans.backbones.encoding import Encoding
from pmtrans.data.batch import Batch
from pmtrans.losses import (
    Tradeoff,
    identity_similarity,
    label_similarity,
    mixup_feature_loss,
    mixup_label_loss,
)
from pmtrans.methods.method import Context, Method, Moment, Player, Sizes, TargetPass, named
from pmtrans.methods.parts.additions import Additions
from pmtrans.methods.parts.head_alignment import align_head, refit_head, with_known_rows
from pmtrans.methods.pmtrans_options import PMTransOptions
from pmtrans.mixing import MIXINGS, LearnableBeta, Scores, label_weights, uniform_scores
from pmtrans.model import Model, logits_of
from pmtrans.pseudo_labels import (
    LAGS,
    SETTLED,
    FeatureBank,
    NeighbourBank,
    both_views,
    cluster_agreement,
    kmeans_pseudo_labels,
    label_confidence,
    mean_prediction,
    propagated_probabilities,
    transported_probabilities,
)

REFIT_FROM = 100_000  # target images at most, evenly taken


class PMTrans(Method):
    """The min-max cross-entropy game of the paper."""

    title = "PMTrans"
    paper = "Patch-Mix Transformer for Unsupervised Domain Adaptation: A Game Perspective"
    year = 2023
    needs = "one pass of 3B; one pass over the target per epoch"
    looks_at_classes = True
    leaves_out_unknown = True

    agreement: Tensor | None  # of the classifier with the clusters of its features as the game begins
    pseudo_labels_M: Tensor
    confidence_M: Tensor | None  # in (0, 1], of the pseudo labels; None: every label counts the same

    def __init__(self, model: Model, options: PMTransOptions, sizes: Sizes) -> None:
        super().__init__(model)
        self.options = options
        beta = LearnableBeta(options.beta_start, options.beta_floor, options.beta_ceiling)
        beta.requires_grad_(options.beta != "fixed")
        self.mixing = MIXINGS[options.mixing](beta, model.backbone.grid, options.ratio_weighs)
        self.mixing.check(model.backbone)
        self.tradeoff = Tradeoff(options.alpha, options.alpha_value)
        self.additions = Additions(model, options.added_weights())
        self.beta_rate = options.beta_rate(sizes.steps_per_epoch)
        asks = options.align_head == "lagging" or options.second_view or options.refit_head
        self.register_buffer("agreement", torch.zeros(()) if asks else None)
        self.register_buffer("pseudo_labels_M", torch.zeros(sizes.target_images, dtype=torch.long))
        self.register_buffer("confidence_M", torch.ones(sizes.target_images) if options.confidence else None)
        self.bank = (
            NeighbourBank(sizes.target_images, model.backbone.features, sizes.classes)
            if options.pseudo_labels == "neighbours"
            else None
        )
        unseen_MK = torch.zeros(sizes.target_images, sizes.classes)
        self.seen = (
            FeatureBank(sizes.target_images, model.backbone.features, logits_MK=unseen_MK)
            if options.reuse_features
            else None
        )

    @classmethod
    def images_per_pair(cls, options: Any, progress: float) -> int:
        return 3 + 2 * bool(options.mic) + bool(options.pseudo_labels == "neighbours")  # MIC's two, the bank's one

    def players(self, head_ratio: float) -> list[Player]:
        ascends = self.options.beta == "ascend"
        mixing, tradeoff = named(self.mixing, "mixing"), named(self.tradeoff, "tradeoff")
        own = [
            Player("patchmix", mixing, head_ratio, self.beta_rate, ascends=ascends, decays=False),
            Player("tradeoff", tradeoff, head_ratio, self.options.alpha_learning_rate, decays=False),
        ]
        return [*super().players(head_ratio), *(player for player in own if player.parameters)]

    def before_step(self, moment: Moment, context: Context) -> None:
        """Pseudo labels as the game begins, and anew every so many steps; a bank of neighbours keeps itself up."""
        first = moment.step == 0
        due = moment.step % (self.options.refresh_steps or moment.steps_per_epoch) == 0
        if not (first or (due and self.bank is None)):
            return
        if first or self.seen is None:
            target = context.target_pass()
        else:
            target = TargetPass(self.seen.features_MF, self.seen.logits_MK)
        self._look_at_classes(target, context)
        if first:
            self._find_agreement(target)
            target = self._begin(target, context)
            self._look_at_classes(target, context)
        labels_M = self._label(self._as_labelled(target, context))
        if not first:
            context.metrics["pseudo_labels_changed"] = (labels_M != self.pseudo_labels_M).float().mean()
        self.pseudo_labels_M.copy_(labels_M)

    def _as_labelled(self, target: TargetPass, context: Context) -> TargetPass:
        """What labels are read off: what the untrained backbone sees too, where it is asked for and known."""
        if not self.options.second_view or context.second_view is None or self._is_settled():
            return target
        second, logits_MK = context.second_view(self.pinned_M), target.logits_MK
        if second.logits_MK is not None:
            logits_MK = mean_prediction(logits_MK, second.logits_MK)
        return TargetPass(both_views(target.features_MF, second.features_MF), logits_MK)

    def _look_at_classes(self, target: TargetPass, context: Context) -> None:
        if self.target_classes is not None:
            self.target_classes.update(target, self.pinned_M)
            context.metrics.update(self.target_classes.state())

    def _begin(self, target: TargetPass, context: Context) -> TargetPass:
        """Align the classifier, fill the banks."""
        features_MF, logits_MK = target.features_MF, target.logits_MK
        if self._must_align():
            assert context.source_pass is not None
            labelled = with_known_rows(context.source_pass(), target, self.pinned_M)
            known, _ = self._known(target)
            smoothing, classes = self.options.label_smoothing, self.target_classes
            align_head(self.model.head, labelled, known, smoothing, classes, context.check_stop)
            with torch.no_grad():
                logits_MK = logits_of(self.model.head, features_MF)
        if self.bank is not None:
            self.bank.fill(features_MF, probabilities_MK=logits_MK.float().softmax(1))
        if self.seen is not None:
            self.seen.fill(features_MF, logits_MK=logits_MK)
        return TargetPass(features_MF, logits_MK)

    def _find_agreement(self, target: TargetPass) -> None:
        if self.agreement is not None:
            known, seeds_M = self._known(target)
            self.agreement.copy_(cluster_agreement(known.features_MF, known.logits_MK, seeds_M))

    def _must_align(self) -> bool:
        if self.options.align_head != "lagging":
            return self.options.align_head == "always"
        assert self.agreement is not None
        return float(self.agreement) < LAGS

    def _is_settled(self) -> bool:
        """Whether the classifier began so close to its clusters that it is left as it trains; not with given labels."""
        assert self.agreement is not None
        return self.pinned_M is None and float(self.agreement) >= SETTLED

    def _known(self, target: TargetPass) -> tuple[TargetPass, Tensor | None]:
        """The images of known classes, and the labels that the user gave of them."""
        if self.target_classes is None:
            return target, self.pinned_M
        seeds_M = None if self.pinned_M is None else self.pinned_M[self.target_classes.known_M]
        return self.target_classes.known(target), seeds_M

    def _label(self, target: TargetPass) -> Tensor:
        """Labels_M of the whole target; their confidences are stored where they are used.

        Images of no known class carry what the model says; nothing is trained with it.
        """
        labels_M, confidence_M = self._labels_of(*self._known(target))
        if self.target_classes is not None:
            known_M, found_M, sure_M = self.target_classes.known_M, labels_M, confidence_M
            labels_M = target.logits_MK.argmax(1).masked_scatter(known_M, found_M)
            confidence_M = (
                None if sure_M is None else torch.ones_like(target.logits_MK[:, 0]).masked_scatter(known_M, sure_M)
            )
        if self.confidence_M is not None and confidence_M is not None:
            self.confidence_M.copy_(confidence_M)
        return labels_M

    def _labels_of(self, target: TargetPass, seeds_M: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Labels_M, and confidences_M where they are used; those that the user gave are certain."""
        features_MF, logits_MK = target.features_MF, target.logits_MK
        if self.options.pseudo_labels in ("propagation", "transport"):
            near_MK = propagated_probabilities(features_MF, logits_MK.float().softmax(1), seeds_M=seeds_M)
            if self.options.pseudo_labels == "transport":
                near_MK = transported_probabilities(features_MF, logits_MK, self._prior(near_MK))
            highest_M, labels_M = near_MK.max(1)
        else:
            labels_M = kmeans_pseudo_labels(features_MF, logits_MK=logits_MK, seeds_M=seeds_M)
            if self.confidence_M is None:
                return labels_M, None
            highest_M = label_confidence(features_MF, labels_M, logits_MK.shape[1])
        if seeds_M is None:
            return labels_M, highest_M
        given_M = seeds_M >= 0
        return torch.where(given_M, seeds_M, labels_M), highest_M.masked_fill(given_M, 1.0)

    def _prior(self, near_MK: Tensor) -> Tensor:
        """Shares_K of the target's classes, by labels spread over near images, or equal ones of those present."""
        counts_K = torch.bincount(near_MK.argmax(1), minlength=near_MK.shape[1]).float()
        if self.options.prior == "uniform":
            counts_K = torch.ones_like(counts_K) if self.target_classes is None else self.target_classes.present_K
        return counts_K / counts_K.sum()

    def forward(self, batch: Batch, moment: Moment) -> dict[str, Tensor]:  # Algorithm 1
        pseudo_labels, confidence = self._pseudo_labels(batch)

        backbone, head = self.model.backbone, self.model.head
        source_BND, target_BND = backbone.embed_each(batch.source_images, batch.target_images)
        pairs = len(source_BND)
        scored = 0 if self.options.attention == "uniform" else (3 if self.mixing.scores_mixed else 2) * pairs
        mixed = self.mixing(source_BND, target_BND)  # Definition 1: lambda ~ Beta(b, g), one per patch
        s, t, i = self.mixing.encode(backbone, source_BND, target_BND, mixed, scored).split(pairs)  # one pass of 3B
        logits_s, logits_i = head(torch.cat([s.features_BF, i.features_BF])).chunk(2)
        if self.seen is not None and self.training:
            with torch.no_grad():
                self.seen.store(batch.target_index, t.features_BF, logits_MK=head(t.features_BF))
        classification = self.source_loss(logits_s, batch.source_labels, self.options.label_smoothing)
        labels = batch.source_labels, pseudo_labels
        term_weights = None if self.target_classes is None else self._term_weights(batch)
        feature_space, label_space, w_s = self.cross_entropy(
            mixed.ratio_BN, s, t, i, logits_i, labels, confidence, term_weights
        )
        game = self.tradeoff(feature_space, label_space, moment.progress)
        alpha = self.tradeoff.alpha(moment.progress)
        added, added_parts = self._additions(batch, t.features_BF)
        return {
            "loss": classification + game + added,  # J, and MCC or MIC where they are switched on
            "classification": classification.detach(),
            "feature_space": feature_space.detach(),
            "label_space": label_space.detach(),
            "cross_entropy": (feature_space + label_space).detach(),  # CE_{s,i,t}
            "alpha": alpha if isinstance(alpha, Tensor) else feature_space.new_full((), alpha),
            "label_weight_mean": w_s.detach().mean(),
            "label_weight_spread": w_s.detach().std(unbiased=False),
            **added_parts,
        }

    def _term_weights(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the source and the target term of each pair: absent classes and unknown images have no part in them."""
        assert self.target_classes is not None
        target_B = self.target_classes.target_weights(batch.target_index)
        return target_B * self.target_classes.source_weights(batch.source_labels), target_B

    def _additions(self, batch: Batch, features_BF: Tensor) -> tuple[Tensor | float, dict[str, Tensor]]:
        if self.target_classes is None:
            added, parts = self.additions(self.model, batch.target_images, features_BF)
            return added, parts
        return self.additions.on_classes(self.model, batch, features_BF, self.target_classes, self.options.separation)

    def _label_weights(
        self, ratio_BN: Tensor, s: Encoding, t: Encoding, i: Encoding, labels: Tensor, pseudo_labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        even_BN = uniform_scores(ratio_BN)
        if self.options.attention == "uniform":
            return label_weights(ratio_BN, even_BN, even_BN)
        score, head = self.model.backbone.attention_scores, self.model.head
        scores = (
            Scores(score(s, head, labels).softmax(1), even_BN)
            if self.options.attention == "softmaxed"
            else Scores(score(s, head, labels), score(t, head, pseudo_labels))
        )
        if self.mixing.scores_mixed:
            scores.mixed_BN = (score(i, head, labels, last=True) + score(i, head, pseudo_labels, last=True)) / 2
        return self.mixing.label_weights(ratio_BN, scores)

    def cross_entropy(
        self,
        ratio_BN: Tensor,
        s: Encoding,
        t: Encoding,
        i: Encoding,
        logits_i: Tensor,
        labels: tuple[Tensor, Tensor],
        confidence: Tensor | None = None,
        term_weights: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The two parts of CE_{s,i,t} = L_f + L_l, and the label weight lambda^s; a part that is off is 0.

        ``term_weights``: of the source and the target term of each pair, where not all pairs count.
        """
        source_labels, pseudo_labels = labels
        lambda_s, lambda_t = self._label_weights(ratio_BN, s, t, i, source_labels, pseudo_labels)
        w_s, w_t = lambda_s, lambda_t
        if term_weights is not None:
            w_s, w_t = lambda_s * term_weights[0], lambda_t * term_weights[1]
        feature_space = label_space = logits_i.new_zeros((), dtype=torch.float32)
        if self.options.feature_loss:
            positives = self.options.positives
            informed = self.options.class_information
            by_label = label_similarity(source_labels, positives)
            by_target = label_similarity(pseudo_labels, positives) if informed else identity_similarity(pseudo_labels)
            features = i.features_BF, s.features_BF, t.features_BF
            feature_space = mixup_feature_loss(*features, by_label, by_target, w_s, w_t, self.options.temperature)
            feature_space = self.options.feature_weight * feature_space
        if self.options.label_loss:
            normalised = self.bank is not None  # its votes are no probabilities
            label_space = mixup_label_loss(logits_i, source_labels, pseudo_labels, w_s, w_t, confidence, normalised)
        return feature_space, label_space, lambda_s

    def _pseudo_labels(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        if self.bank is None:
            confidence = None if self.confidence_M is None else self.confidence_M[batch.target_index]
            return self.pseudo_labels_M[batch.target_index], confidence
        was_training = self.model.training
        self.model.eval()
        with torch.no_grad():  # the authors' code pays an extra evaluation pass of B each step
            features_BF, logits_BK = self.model.features_and_logits(batch.target_images)
        self.model.train(was_training)
        voted_B, confidence_B = self.bank.label(batch.target_index, features_BF, logits_BK.float().softmax(1))
        if self.pinned_M is None:
            return voted_B, confidence_B
        pinned_B = self.pinned_M[batch.target_index]
        return torch.where(pinned_B >= 0, pinned_B, voted_B), confidence_B

    def after_step(self, moment: Moment) -> None:
        self.mixing.beta.project()
        self.additions.after_step(self.model, moment)

    def settle_head(self, context: Context) -> bool:
        """Fit the classifier to the clusters of the features as they are now, which it follows with a delay."""
        if not self.options.refit_head or self._is_settled():
            return False
        assert context.source_sample is not None
        target = context.target_pass()
        labelled = with_known_rows(context.source_sample(), target, self.pinned_M)
        known, _ = self._known(target)
        seen, seeds_M = self._known(self._as_labelled(target, context))
        every = -(-len(seen.logits_MK) // REFIT_FROM)  # neighbours among all others take the square of their number
        seen, known = (TargetPass(one.features_MF[::every], one.logits_MK[::every]) for one in (seen, known))
        seeds_M = None if seeds_M is None else seeds_M[::every]
        near_MK = propagated_probabilities(seen.features_MF, seen.logits_MK.float().softmax(1), seeds_M=seeds_M)
        smoothing = self.options.label_smoothing
        refit_head(self.evaluated.head, labelled, known, near_MK.argmax(1), smoothing, self.target_classes)
        return True

    def state(self) -> dict[str, Tensor | float]:
        b, g = self.mixing.beta.concentrations().detach()
        return {"beta_b": b, "beta_g": g}
