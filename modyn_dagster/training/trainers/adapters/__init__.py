"""Trainers of libraries: scikit-learn, LightGBM, XGBoost and river."""
